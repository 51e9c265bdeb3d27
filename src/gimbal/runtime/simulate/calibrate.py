"""A plan from finished local runs: speeds from metrics.jsonl, lengths from rollouts.jsonl, the rest from the recipe.

Each run is simulated as it was; that counts its decode steps, rows, prompts and starts. Its measured seconds are then the sum of
those counts times unknown speeds, fitted by least squares of relative errors, none below 0. One run alone cannot tell the fixed part of
a decode step from the part of each row, nor these from the cost of a start: a weak prior on their shares (``SHARES``) decides what
the runs leave open, so forecasts for other ``slots`` want runs with different ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gimbal import config
from gimbal.report.files import JsonLines
from gimbal.runtime.base import Local
from gimbal.runtime.run import AbstractRun
from gimbal.runtime.simulate.simulator import Forecast, Setup, simulate
from gimbal.runtime.simulate.timing import RecordedLengths, Speeds

# Of the seconds of generation and of training: where the runs cannot tell.
SHARES = {"step_s": 0.4, "row_s": 0.3, "prefill_token_s": 0.1, "start_s": 0.2}
TRAIN_SHARES = {"train_step_s": 0.1, "train_token_s": 0.6, "train_prompt_token_s": 0.3}
WORK = {"step_s": "steps", "row_s": "rows", "prefill_token_s": "prompt", "start_s": "starts"}
WEIGHT = 0.03  # of the prior: as if it were known to 1 / 0.03 of itself, beside times known to 1
SEEDS = 5  # simulations that a run's counts are a mean of
FEWEST = 16  # recorded rollouts that a distribution is taken from


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A finished run as a plan without speeds, and its seconds over the steps that the plan's figures are about."""

    name: str
    plan: Setup  # warm-up and steps are the run's own
    generate: float
    train: float
    sync: float

    @property
    def seconds(self) -> float:
        return self.generate + self.train + self.sync

    @property
    def rollouts_per_s(self) -> float:
        return self.plan.steps * self.plan.prompts_per_step * self.plan.num_generations / self.seconds


def read(directory: Path) -> Measured:
    """A finished run of the local runtime; ValueError says what one lacks."""
    _, run = config.load(directory, AbstractRun)
    if not isinstance(run.runtime, Local):
        raise ValueError(
            f"{directory} generated and trained at the same time, so its times include waiting; plan from a local run"
        )
    rows, rollouts = (JsonLines(directory / f"{name}.jsonl").read() for name in ("metrics", "rollouts"))
    size = float(sum(file.stat().st_size for file in (directory / "model").glob("*.safetensors")))
    return measured(directory.name, run, rows, rollouts, size)


def measured(
    name: str,
    run: AbstractRun,
    rows: Sequence[Mapping[str, Any]],
    rollouts: Sequence[Mapping[str, Any]],
    weight_bytes: float,
) -> Measured:
    """From the lines of metrics.jsonl and rollouts.jsonl. The first step is the warm-up."""
    if len(rows) < 2:
        raise ValueError(
            f"{name}: needs 2 finished steps, found {len(rows)} (the first is warm-up, the others give the speeds); train it longer: "
            f"gimbal train --from {name} steps=10"
        )
    timed = rows[1:]
    lengths, prompt = recorded(rollouts, rows, run.sampling.max_length, name)
    plan = Setup(
        lengths=lengths,
        prompt=prompt,
        samplers=1,
        trainers=0,
        slots=_slots(run),
        prompts_per_step=run.prompts_per_step,
        num_generations=run.num_generations,
        budget=run.budget,
        max_length=run.sampling.max_length,
        max_staleness=run.max_staleness,
        admission=run.staleness.admission,
        ahead=run.ahead,
        kept=_mean(rows, "kept_frac", 1.0) if run.filters else 1.0,
        oversampling=run.oversampling,
        weight_bytes=weight_bytes,
        warmup=1,
        steps=len(timed),
    )
    seconds = {name: sum(row[f"time/{name}"] for row in timed) for name in ("generate", "train", "sync")}
    return Measured(name=name, plan=plan, **seconds)


def recorded(
    rollouts: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]], limit: int, name: str
) -> tuple[RecordedLengths, int]:
    """Lengths by group, stretched to the mean that the metrics know of all rollouts; and the tokens of a prompt.

    Prompts are recorded as text: their tokens are estimated at as many characters as the median decision has. Where few rollouts are
    recorded, the mean length of each step stands in for those that are missing: it keeps the mean, and loses some of the spread.
    """
    means = [row["length/mean"] for row in rows if row.get("length/mean") is not None]
    if not rollouts or len(rollouts) + len(means) < FEWEST:
        found = f"{len(rollouts)} and {len(means)} steps" if rollouts else "none"
        raise ValueError(
            f"{name}: needs {FEWEST} recorded lengths, found {found}; train it longer with record_every=1, or give the lengths: "
            "lengths='LogNormal(mean=..., cv=..., limit=...)'"
        )
    groups: dict[int, list[int]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout["group"]].append(len(rollout["version"]))
    sampled = sum(map(sum, groups.values())) / len(rollouts)
    ratio = _mean(rows, "length/mean", sampled) / sampled
    stretched = [tuple(min(limit, max(1, round(n * ratio))) for n in group) for group in groups.values()]
    if len(rollouts) < FEWEST:
        stretched += [(min(limit, max(1, round(mean))),) for mean in means]
    characters = median(len(piece) for rollout in rollouts for piece in rollout["pieces"])
    prompt = sum(len(rollout["prompt"]) for rollout in rollouts) / len(rollouts) / max(characters, 1)
    return RecordedLengths(groups=tuple(stretched)), max(1, round(prompt))


def pooled(runs: Sequence[Measured]) -> Measured:
    """The first run, with the lengths of all those that let rollouts grow as long as it does."""
    first = runs[0]
    groups: tuple[tuple[int, ...], ...] = ()
    for run in runs:
        if run.plan.max_length >= first.plan.max_length and isinstance(run.plan.lengths, RecordedLengths):
            groups += run.plan.lengths.groups
    return replace(first, plan=replace(first.plan, lengths=RecordedLengths(groups=groups)))


def fit(runs: Sequence[Measured]) -> Speeds:
    """The speeds under which these runs take the seconds that they took."""
    counts = [counted(run.plan) for run in runs]
    generate = np.array([run.generate for run in runs])
    work = np.array([[count[WORK[name]] for name in SHARES] for count in counts])
    # What a step records whatever its size; what grows with the batch is counted as training.
    sync_s = min(run.sync / run.plan.steps for run in runs)
    train = np.array([run.train + run.sync - sync_s * run.plan.steps for run in runs])
    parts = ("learner_steps", "decisions", "prompt_tokens")
    trained = np.array([[count[part] for part in parts] for count in counts])
    found = dict(zip(SHARES, solve(work, generate, list(SHARES.values())), strict=True))
    found |= dict(zip(TRAIN_SHARES, solve(trained, train, list(TRAIN_SHARES.values())), strict=True))
    # The runs loaded weights while nothing was drawn; a sampler apart would stop for at most as long.
    return Speeds(**found, sync_s=sync_s, load_s=sync_s)


def counted(plan: Setup) -> dict[str, float]:
    """What the simulated run does in its steps, as a mean over seeds."""
    total: dict[str, float] = defaultdict(float)
    for seed in range(SEEDS):
        forecast = simulate(replace(plan, seed=seed), "serial")
        trained = {
            "learner_steps": plan.steps,
            "decisions": forecast.trained["decisions"],
            "prompt_tokens": forecast.trained["groups"] * plan.prompt,
        }
        for name, value in {**forecast.work, **trained}.items():
            total[name] += value / SEEDS
    return total


def solve(work_RJ: np.ndarray, seconds_R: np.ndarray, shares: Sequence[float]) -> list[float]:
    """Speeds x >= 0 that minimise sum_R (work x / seconds - 1)^2 + sum_j (WEIGHT (x_j / prior_j - 1))^2.

    prior_j is the speed at which kind j takes its share of all seconds. By trying each set of speeds that are not 0.
    """
    prior_J = np.array(shares) * seconds_R.sum() / np.maximum(work_RJ.sum(0), 1e-9)
    a = np.concatenate([work_RJ * prior_J / seconds_R[:, None], WEIGHT * np.eye(len(prior_J))])
    b = np.concatenate([np.ones(len(seconds_R)), WEIGHT * np.ones(len(prior_J))])
    best, least = np.zeros(len(prior_J)), float("inf")
    for size in range(1, len(prior_J) + 1):
        for chosen in map(list, combinations(range(len(prior_J)), size)):
            x = np.zeros(len(prior_J))
            x[chosen] = np.linalg.lstsq(a[:, chosen], b, rcond=None)[0]
            error = float(((a @ x - b) ** 2).sum())
            if (x >= 0).all() and error < least:
                best, least = x, error
    return (best * prior_J).tolist()


def again(run: Measured, speeds: Speeds) -> Forecast:
    """The run itself, simulated: how well speeds explain it. A mean over seeds, as a forecast of its throughput."""
    forecasts = [simulate(replace(run.plan, speeds=speeds, seed=seed), "serial") for seed in range(SEEDS)]
    seconds = sum(forecast.seconds for forecast in forecasts) / SEEDS
    middle = sorted(forecasts, key=lambda forecast: abs(forecast.seconds - seconds))[0]
    scale = middle.seconds / seconds
    return replace(
        middle,
        seconds=seconds,
        step_s=seconds / run.plan.steps,
        rollouts_per_s=middle.rollouts_per_s * scale,
        tokens_per_s=middle.tokens_per_s * scale,
    )


def _slots(run: AbstractRun) -> int:
    """Of the engine, or of the one that it wraps."""
    found = [value for path, value in config.paths(run.engine).items() if path.rpartition(".")[2] == "slots"]
    if not found:
        raise ValueError(f"{type(run.engine).__name__} has no slots, so its speed is not that of parallel rollouts")
    return int(found[0])


def _mean(rows: Sequence[Mapping[str, Any]], name: str, default: float) -> float:
    values = [row[name] for row in rows if row.get(name) is not None]
    return sum(values) / len(values) if values else default
