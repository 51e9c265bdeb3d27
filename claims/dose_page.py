"""The section of claims/README.md on dose.py, and its figure; page.py writes them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import campaign
import dose
from panels import GAP, HEIGHT, LEFT, TOP, WIDTH, drawing, frame

from gimbal.report.figure import COLOURS

Runs = Sequence[Mapping[str, Any]]

DOSE = """## Stale data, a coarse sampler, and a price on discrepancy (`dose.py`)

![Held-out pass@1 against age, and against the learning rate](dose.svg)

"""
READING = f"""Tuning: the scores of one run each at {", ".join(f"{rate:g}" for rate in dose.RATES)}, the best in bold; "stable" is the
largest stable rate. Score: median (least to most) of the fresh seeds at the best one. Means over those runs and their steps: "clipped",
the share of decisions that the clip left without gradient; "gap", |p - p'| between the sampler and what the clip is anchored to;
"priced", the same against what the price is measured at; "gap at the end", the mean of the last four steps.
"""
COMPARING = """**Comparisons.** By how much the score of the first is above that of the second: the median of all differences, its exact
interval of 96.8 %, and the p of the rule.
"""
PRICES = """**Whether a price on discrepancy helps is not decided here**, and not for want of seeds. The multiplier rose, so by the
rule it acts. But it averaged less than a tenth of the advantage ("price / advantage"), and at equal rates no gap ended lower than
without it ("gap at the end"; *version-version* had another best rate than *none-version*): the gap falls because the policy becomes
sure. That takes a longer run, or a sampler whose gap stays. The comparisons at one rate for all were added because a run had
collapsed there.
"""
# What an arm is on fresh data, where it has no run of its own.
FRESH = {"plain": "plain", "weighted": "plain", "unclipped": "unclipped"}
# (arm, the arm beside it): what they differ in.
PAIRS = {
    "age": {
        ("weighted", "plain"): "the weight",
        ("unclipped", "plain"): "4 updates for one",
        ("clip", "plain"): "4 updates for one, and the clip",
        ("clip", "unclipped"): "the clip",
        ("sampler", "clip"): "what the clip is anchored to",
        ("decoupled", "clip"): "the weight",
        ("truncated", "clip"): "the weight",
    },
    "gap": {("token", "clip"): "the price", ("rollout", "clip"): "the price"},
    "price": {
        ("present-present", "none-present"): "the price",
        ("version-present", "none-present"): "the price",
        ("none-version", "none-present"): "what the clip is anchored to",
        ("present-version", "none-version"): "the price",
        ("version-version", "none-version"): "the price",
    },
}
SHOWN = {  # in the README
    "plain": "policy gradient, no correction",
    "weighted": "the same with importance weights",
    "unclipped": "four updates a batch, no correction",
    "sampler": "PPO's clip around the sampler, four updates",
    "clip": "PPO's clip around the recomputed policy, four updates",
    "truncated": "the same with weights cut at 2 (TIS)",
    "decoupled": "decoupled PPO, four updates",
}
TITLES = {
    "age": "Age {}, float32 sampler.",
    "gap": "int4 sampler at the trainer's version.",
    "price": "int4 sampler, age {}: what the price is measured against, and what the clip is anchored to.",
}


def section(runs: Runs) -> str:
    lines = [DOSE + "\n\n".join((dose.__doc__ or "").split("\n\n")[1:-1]), ""]
    lines.append(f"{len(runs)} of {dose.whole()} runs are recorded.")
    lines += ["", READING]
    for question in dose.QUESTIONS:
        for age in sorted({stage.age for stage in dose.STAGES if stage.question == question}):
            if shown := table(runs, question, age):
                lines += [f"**{TITLES[question].format(age)}**", "", shown, ""]
    return "\n".join([*lines, COMPARING, comparisons(runs), "", PRICES, ""])


def comparisons(runs: Runs) -> str:
    """Every two arms that differ in a part, or an arm and the same on fresh data, and what the rule says of them."""
    lines = ["| question | age | arms | apart in | difference | p | verdict |", "| --- " * 7 + "|"]
    questions = list(dose.QUESTIONS)
    for place, age, rate in sorted({(questions.index(s.question), s.age, s.rate or 0.0) for s in dose.STAGES}):
        question = questions[place]
        pairs = [(one, (question, age, other), other, part) for (one, other), part in PAIRS[question].items()]
        if question == "age" and age:
            fresh = ((arm, FRESH.get(arm, "clip")) for arm in dose.AGE)
            pairs += [(arm, ("age", 0, same), "fresh data", "age") for arm, same in fresh]
        for one, beside, name, part in pairs:
            own, other = values(runs, question, age, one, rate), values(runs, *beside, rate)
            if own and other:
                p, (middle, low, high) = dose.p_value(own, other), campaign.shift(own, other)
                both = f"*{one}*, {name if part == 'age' else f'*{name}*'}" + (f", both at {rate:g}" if rate else "")
                cells = [question, str(age), both, part]
                cells += [f"{middle:+.3f} ({low:+.3f} to {high:+.3f})", f"{p:.3f}", verdict(p)]
                lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def ages(runs: Runs) -> str:
    """What the README shows of the question of age: the median of each arm, on fresh data that of the arm which it is there."""
    at = sorted({stage.age for stage in dose.STAGES if stage.question == "age"})
    lines = ["| method | " + " | ".join(f"age {age}" for age in at) + " |", "|---" * (1 + len(at)) + "|"]
    above: set[str] = set()
    for arm, name in SHOWN.items():
        cells = []
        for age in at:
            same = arm if age else FRESH.get(arm, "clip")
            found = values(runs, "age", age, same)
            cells.append(
                "as above" if not age and same in above else f"{statistics.median(found):.2f}" if found else "not run"
            )
        above.add(FRESH.get(arm, "clip"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def missed(runs: Runs, age: int, arms: Sequence[str]) -> float:
    """The largest loss against fresh data that the intervals of these arms do not exclude."""
    lows = (
        campaign.shift(values(runs, "age", age, arm), values(runs, "age", 0, FRESH.get(arm, "clip")))[1] for arm in arms
    )
    return -min(lows)


def recovered(runs: Runs, arm: str, age: int = 4) -> float:
    """The share of what *plain* loses at an age that an arm does not lose, by medians."""
    own, lost, fresh = (
        statistics.median(values(runs, "age", *one)) for one in ((age, arm), (age, "plain"), (0, "plain"))
    )
    return (own - lost) / (fresh - lost)


def verdict(p: float) -> str:
    return "**differ**" if p < dose.P else "not decided"


def spread(scores: Sequence[float]) -> str:
    return f"{statistics.median(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})"


def arms(runs: Runs, question: str, age: int) -> list[str]:
    """Those of which all seeds are recorded."""
    return [arm for arm in dose.QUESTIONS[question] if len(dose.fresh(runs, question, age, arm)) == len(dose.SEEDS)]


def table(runs: Runs, question: str, age: int) -> str:
    names = arms(runs, question, age)
    if not names:
        return ""
    heads = ["arm", "tuning", "stable", "score", "clipped", "gap"]
    if question == "age":
        heads += ["weights above the cap"]
    else:
        heads += ["gap at the end", "priced", "multiplier, least to most", "price / advantage"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in names:
        cells = [f"*{arm}*: {dose.QUESTIONS[question][arm].says}", *figures(runs, question, age, arm)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def values(runs: Runs, question: str, age: int, arm: str, rate: float | None = None) -> list[float]:
    """The scores of an arm with all its seeds, else none."""
    found = [run["score"] for run in dose.fresh(runs, question, age, arm, rate)]
    return found if len(found) == len(dose.SEEDS) else []


def figures(runs: Runs, question: str, age: int, arm: str) -> list[str]:
    """The cells of an arm: rates, scores, and whether its mechanism was at work."""
    here = dose.fresh(runs, question, age, arm)
    stable = dose.stable(runs, question, age, arm)
    tried, best = dose.tuning(runs, question, age, arm), dose.best(runs, question, age, arm)
    scores = ", ".join(f"**{score:.2f}**" if rate == best else f"{score:.2f}" for rate, score in tried.items())
    cells = [scores, "none" if stable is None else f"{stable:g}"]
    cells.append(spread([run["score"] for run in here]))
    cells.append(f"{statistics.fmean(run['clipped'] for run in here):.4f}")
    cells.append(mean(here, "gap"))
    if question == "age":
        return [*cells, f"{statistics.fmean(run['above_cap'] for run in here):.5f}" if arm in dose.CAPS else ""]
    cells.append(mean([{"gap": run["gap"][-4:]} for run in here], "gap") if "gap" in here[0] else "")
    if "multiplier" not in here[0]:
        return [*cells, "", "", ""]
    moved = [value for run in here for value in run["multiplier"]]
    share = statistics.fmean(sum(run["size"]) / sum(run["of"]) for run in here)
    return [*cells, mean(here, "priced"), f"{min(moved):.2f} to {max(moved):.2f}", f"{share:.3f}"]


def mean(runs: Runs, name: str) -> str:
    """Over seeds and steps; empty where the anchor is the sampler and leaves nothing to measure."""
    return f"{statistics.fmean(statistics.fmean(run[name]) for run in runs):.4f}" if name in runs[0] else ""


def figure(runs: Runs) -> str:
    """Two panels: the score against age, each arm at its best rate; the tuning runs at the oldest age that has them all."""
    ages = sorted({s.age for s in dose.STAGES if s.question == "age" and arms(runs, "age", s.age)})
    seen = [arm for arm in dose.AGE if any(arm in arms(runs, "age", age) for age in ages)]
    lines: dict[str, list[tuple[int, list[float]]]] = {arm: [] for arm in seen}
    for place, age in enumerate(ages):
        for arm in seen:
            if found := values(runs, "age", age, arm if age else FRESH.get(arm, "clip")):
                lines[arm].append((place, found))
    tuned = max((age for age in ages if len(arms(runs, "age", age)) > 2), default=0)
    tuning = {
        arm: [(place, [score]) for place, score in enumerate(dose.tuning(runs, "age", tuned, arm).values())]
        for arm in arms(runs, "age", tuned)
    }
    panels = [
        panel(LEFT, lines, [str(age) for age in ages], "age of the data (versions), at the best rate"),
        panel(
            LEFT + WIDTH + GAP,
            tuning,
            [f"{rate:g}" for rate in dose.RATES],
            f"learning rate, age {tuned}, one run each",
        ),
    ]
    title = f"Held-out pass@1 after {dose.STEPS} steps"
    return drawing(
        title,
        f"{title}: median and range of {len(dose.SEEDS)} seeds; dashed: before training",
        panels,
        [(colour(arm), f"{arm}: {dose.AGE[arm].says}") for arm in seen],
    )


def colour(arm: str) -> str:
    return COLOURS[list(dose.AGE).index(arm) % len(COLOURS)]


def panel(left: float, lines: Mapping[str, list[tuple[int, list[float]]]], ticks: Sequence[str], below: str) -> str:
    step = WIDTH / max(1, len(ticks) - 1)

    def at(place: int, value: float) -> str:
        return f"{left + place * step:.1f},{TOP + HEIGHT * (1 - value):.1f}"

    y = TOP + HEIGHT * (1 - dose.BEFORE)
    parts = frame(left, ticks, below)
    parts.append(f'<path class="axis" stroke-dasharray="4 4" d="M{left},{y:.1f} h{WIDTH}"/>')
    for arm, points in lines.items():
        band = [at(i, max(found)) for i, found in points] + [at(i, min(found)) for i, found in reversed(points)]
        middle = [at(i, statistics.median(found)) for i, found in points]
        parts.append(f'<polygon class="band" fill="{colour(arm)}" points="{" ".join(band)}"/>')
        parts.append(f'<polyline class="line" stroke="{colour(arm)}" points="{" ".join(middle)}"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour(arm)}"/>' for x, y in (p.split(",") for p in middle)]
    return "".join(parts)
