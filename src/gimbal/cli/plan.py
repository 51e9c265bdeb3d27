"""gimbal plan: predict throughput with other hardware, schedules and staleness bounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gimbal.cli.words import parse, table
from gimbal.waiting import tell

if TYPE_CHECKING:
    from gimbal.runtime.simulate.calibrate import Measured
    from gimbal.runtime.simulate.simulator import Forecast, Schedule, Setup

HELP = """\
gimbal plan [--from RUN[,RUN...]] [key=value ...]

Simulates the pipeline on a virtual clock under five schedules. Speeds and lengths come from finished local runs or from you:

  --from RUN[,RUN...]   use the speeds, lengths and recipe of a run; more runs with different slots and lengths improve the estimate
  samplers=6 trainers=2 slots=64 prompts_per_step=128 max_staleness=2       what to simulate
  speeds.step_s=0.02 speeds.row_s=1e-4 speeds.train_token_s=5e-5 ...        seconds on one device
  'lengths=LogNormal(mean=4000, cv=1, limit=16384)'                         decisions per rollout
  waits.median=2 waits.sigma=1 waits.longest=60                             seconds until a rollout is scored
  --schedule NAME[,NAME...]   serial, sync, one-step-off, bounded-async, partial-rollout (default: all)
  --runs DIRECTORY            look up run names there instead of in runs
  --json                      print the forecasts as JSON

serial: all devices generate, then all train, like the local runtime. sync: samplers and trainers have their own devices and wait
for each other. one-step-off: the next batch is generated while training on the last one. bounded-async: samplers run up to
max_staleness versions ahead, and finish their rollouts before they load weights. partial-rollout: the same, but weights are loaded
in the middle of rollouts.

Keys:
"""
ENOUGH = 0.97  # share of the best throughput: recommend the least staleness that reaches it
WORTH_SAYING = 0.1  # of a mean age
BOUNDS = (1, 2, 4, 8)  # staleness bounds tried for the recommendation


def plan(argv: Sequence[str]) -> int:
    arguments = parse(argv, ("help", "json"), ("from", "runs", "schedule"))
    if "help" in arguments.flags:
        print(HELP, end="")
        _keys()
        return 0
    if arguments.words:
        raise ValueError(f"{arguments.words[0]!r} is not key=value; give runs with --from")
    from gimbal import config
    from gimbal.runtime.directories import RUNS, find_run
    from gimbal.runtime.simulate import calibrate
    from gimbal.runtime.simulate.simulator import Setup, simulate
    from gimbal.runtime.simulate.timing import Speeds

    runs = Path(arguments.flags.get("runs", RUNS))
    measured = [calibrate.read(find_run(name, runs)) for name in arguments.flags.get("from", "").split(",") if name]
    base = Setup()
    if measured:
        # A plan has two sides: a run on one device becomes one sampler and one trainer.
        base = replace(
            measured[0].plan, speeds=calibrate.fit(measured), trainers=1, warmup=base.warmup, steps=base.steps
        )
    wanted = config.override(base, arguments.overrides, tell)
    if wanted.speeds == Speeds():
        raise ValueError(
            "the speeds are unknown: give a finished run (--from RUN) or the speeds (speeds.step_s=0.02 ...)"
        )
    schedules = _schedules(arguments.flags.get("schedule"))
    forecasts = [simulate(wanted, schedule) for schedule in schedules]
    advice = recommendation(wanted, forecasts)
    if "json" in arguments.flags:
        checks = [_check(run, base) for run in measured]
        document = {
            "plan": config.plain(wanted),
            "forecasts": [forecast.as_dict() for forecast in forecasts],
            "recommendation": advice,
            "runs": [{"name": n, "measured_rollouts_per_s": m, "simulated_rollouts_per_s": s} for n, m, s in checks],
        }
        print(json.dumps(document, indent=1))
        return 0
    for name, real, simulated in (_check(run, base) for run in measured):
        print(f"{name} itself: measured {real:.3g} rollouts/s, simulated {simulated:.3g} ({simulated / real - 1:+.0%})")
    print(
        f"{wanted.samplers} samplers of {wanted.slots} slots, {wanted.trainers} trainers; a step trains on "
        f"{wanted.prompts_per_step} x {wanted.num_generations} rollouts"
    )
    print(rows(forecasts))
    print(advice)
    return 0


def _check(run: Measured, base: Setup) -> tuple[str, float, float]:
    """(name, rollouts per second as measured, and as predicted from the fitted speeds)."""
    from gimbal.runtime.simulate.calibrate import again

    return run.name, run.rollouts_per_s, again(run, base.speeds).rollouts_per_s


def _schedules(asked: str | None) -> Sequence[Schedule]:
    from gimbal.config import nearest
    from gimbal.runtime.simulate.simulator import SCHEDULES

    known: dict[str, Schedule] = {name: name for name in SCHEDULES}
    names = asked.split(",") if asked else list(SCHEDULES)
    for name in names:
        if name not in known:
            raise ValueError(
                f"there is no schedule {name}{nearest(name, SCHEDULES)}; choose from {', '.join(SCHEDULES)}"
            )
    return [known[name] for name in names]


def rows(forecasts: Sequence[Forecast]) -> str:
    """The table. Schedules with equal results share a row, such as one-step-off and bounded-async at k = 1, whose bound is the same."""
    head = (
        "schedule",
        "k",
        "rollouts/s",
        "tokens/s",
        "s/step",
        "sampler idle",
        "slots used",
        "trainer idle",
        "sync MB/s",
    )
    lines: list[tuple[str, ...]] = [(*head, "ages")]
    for f in forecasts:
        ages = " ".join(f"{age}:{share:.0%}" for age, share in f.ages.items())
        figures = (f.rollouts_per_s, f.tokens_per_s, f.step_s)
        shares = (f.sampler_idle, f.occupancy, f.trainer_idle)
        lines.append(
            (
                f.schedule,
                str(f.max_staleness),
                *(f"{figure:.3g}" if figure < 1000 else f"{figure:.0f}" for figure in figures),
                *(f"{share:.0%}" for share in shares),
                f"{f.sync_bytes_per_s / 1e6:.3g}",
                ages,
            )
        )
    names: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        names.setdefault(line[1:], []).append(line[0])
    lines = [(", ".join(found), *cells) for cells, found in names.items()]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  " + "  ".join(f"{cell:{'<' if i in (0, 9) else '>'}{widths[i]}}" for i, cell in enumerate(line)).rstrip()
        for line in lines
    )


def recommendation(plan: Setup, forecasts: Sequence[Forecast]) -> str:
    """One sentence: the least stale schedule within 3 % of the best, and the bottleneck.

    For schedules with a staleness bound it also tries other bounds.
    """
    from gimbal.runtime.simulate.simulator import simulate

    tried = list(forecasts)
    for forecast in forecasts:
        if forecast.schedule in ("bounded-async", "partial-rollout"):
            others = [k for k in BOUNDS if k != forecast.max_staleness]
            tried += [simulate(replace(plan, max_staleness=k), forecast.schedule) for k in others]
    best = max(forecast.rollouts_per_s for forecast in tried)
    enough = [forecast for forecast in tried if forecast.rollouts_per_s >= ENOUGH * best]
    chosen = min(enough, key=lambda forecast: (forecast.age_mean, -forecast.rollouts_per_s))
    bound = f" with max_staleness={chosen.max_staleness}" if chosen.schedule != "sync" else ""
    if plan.admission is not None and plan.admission < chosen.max_staleness:
        bound += f" staleness.admission={plan.admission}"
    plain = next((f.rollouts_per_s for f in forecasts if f.schedule == "sync"), None)
    times = f", {chosen.rollouts_per_s / plain:.2f} times sync" if plain and chosen.schedule != "sync" else ""
    return (
        f"Recommended: {chosen.schedule}{bound}: {chosen.rollouts_per_s:.3g} rollouts/s{times}, mean age "
        f"{chosen.age_mean:.2g}; {_limit(chosen)}.{_price(chosen, plain)}"
    )


def _price(chosen: Forecast, plain: float | None) -> str:
    """What its staleness costs, and whether the throughput makes up for it."""
    from gimbal.runtime.simulate.price import price

    if chosen.age_mean < WORTH_SAYING:
        return ""
    cost = price(chosen.age_mean)
    whole = f": {cost.steps * plain / chosen.rollouts_per_s:.2f} times the time of sync" if plain else ""
    return (
        f" At that age expect {cost.rate:.1f} times the learning rate and {cost.steps:.1f} times the steps of fresh data{whole} "
        "(gimbal-tiny with the closed loop; docs/stability.md)."
    )


def _limit(f: Forecast) -> str:
    if f.schedule == "serial":
        return f"generation takes {f.trainer_idle:.0%} of the time, training the rest"
    if f.trainer_idle > max(0.1, f.sampler_idle):
        return f"the samplers are the limit (trainers idle {f.trainer_idle:.0%}), so another trainer would not help"
    if f.sampler_idle > 0.1:
        return f"the trainers are the limit (samplers idle {f.sampler_idle:.0%}), so another sampler would not help"
    return f"both sides are busy (samplers idle {f.sampler_idle:.0%}, trainers {f.trainer_idle:.0%})"


def _keys() -> None:
    """Read from the source: importing takes seconds, and a help page should not."""
    import ast
    import re

    simulate = Path(__file__).parent.parent / "runtime" / "simulate"
    for prefix, name, file in (
        ("", "Setup", "simulator.py"),
        ("speeds.", "Speeds", "timing.py"),
        ("lengths.", "LogNormal", "timing.py"),
        ("waits.", "Waits", "timing.py"),
    ):
        source, page = (simulate / file).read_text(encoding="utf-8"), {}
        found = next(c for c in ast.parse(source).body if isinstance(c, ast.ClassDef) and c.name == name)
        for item in found.body:
            if isinstance(item, ast.AnnAssign) and not isinstance(item.value, ast.Call | None):
                comment = re.search("  # (.*)$", source.splitlines()[item.lineno - 1])
                value = ast.unparse(item.value).removeprefix("math.").strip("'")
                page[f"{prefix}{ast.unparse(item.target)}={value}"] = comment[1] if comment else ""
        table(page)
