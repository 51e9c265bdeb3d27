"""Writes claims/README.md and the figure from the recorded results: python claims/page.py. A test holds them against the record."""

from __future__ import annotations

import html
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import dose  # noqa: E402

from gimbal.report.figure import COLOURS, STYLE  # noqa: E402

Runs = Sequence[Mapping[str, Any]]
WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 200, 46, 54, 60  # of a panel, its first corner, and between two

HEAD = """# Claims

One file a claim: the question, the rule by which it is decided, the command, the record. Everything below is written by
`python claims/page.py` from the record, and a test recomputes it.

## Stale data, a coarse sampler, and a price on discrepancy (`dose.py`)

![Held-out pass@1 against age, and against the learning rate](dose.svg)

"""
READING = """Score: median (least to most) of the fresh seeds at the best learning rate, which is "rate"; "stable" is the largest stable
one. Means over those runs and their steps: "clipped", the share of decisions that the clip left without gradient; "gap", |p - p'|
between the sampler and what the clip is anchored to; "priced", the same against what the price is measured at.
"""
# What an arm is on fresh data, where it has no run of its own.
FRESH = {"plain": "plain", "weighted": "plain", "unclipped": "unclipped"}
BASELINE = {"age": "clip", "gap": "clip", "price": "none-present"}
TITLES = {
    "age": "Age {}, float32 sampler.",
    "gap": "int4 sampler at the trainer's version.",
    "price": "int4 sampler, age {}: what the price is measured against, and what the clip is anchored to.",
}


def main() -> None:
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    runs = dose.load()
    return {"README.md": HEAD + section(runs), "dose.svg": figure(runs)}


def section(runs: Runs) -> str:
    lines = ["\n\n".join((dose.__doc__ or "").split("\n\n")[1:-1]), ""]
    lines.append(f"{len(runs)} of {dose.whole()} runs are recorded.")
    lines += ["", READING]
    for question in dose.QUESTIONS:
        for age in sorted({stage.age for stage in dose.STAGES if stage.question == question}):
            if shown := table(runs, question, age):
                lines += [f"**{TITLES[question].format(age)}**", "", shown, ""]
    for stage in dose.STAGES:
        if stage.rate is not None and (shown := aside(runs, stage)):
            lines += [
                f"**{TITLES[stage.question].format(stage.age)[:-1]}; fresh seeds at {stage.rate:g}.**",
                "",
                shown,
                "",
            ]
    return "\n".join(lines)


def aside(runs: Runs, stage: dose.Stage) -> str:
    """Scores at one learning rate for all."""
    found = {
        arm: [run["score"] for run in dose.fresh(runs, stage.question, stage.age, arm, stage.rate)]
        for arm in stage.arms
    }
    if any(len(scores) < len(dose.SEEDS) for scores in found.values()):
        return ""
    first = BASELINE[stage.question]
    lines = [f"| arm | score | p against *{first}* |", "| --- | --- | --- |"]
    for arm, scores in found.items():
        p = p_of(scores, found[first]) if arm != first else ""
        lines.append(f"| *{arm}*: {dose.QUESTIONS[stage.question][arm].says} | {spread(scores)} | {p} |")
    return "\n".join(lines)


def spread(scores: Sequence[float]) -> str:
    return f"{statistics.median(scores):.3f} ({min(scores):.3f} to {max(scores):.3f})"


def arms(runs: Runs, question: str, age: int) -> list[str]:
    """Those of which all seeds are recorded."""
    return [arm for arm in dose.QUESTIONS[question] if len(dose.fresh(runs, question, age, arm)) == len(dose.SEEDS)]


def table(runs: Runs, question: str, age: int) -> str:
    names = arms(runs, question, age)
    if not names:
        return ""
    first = BASELINE[question]
    heads = ["arm", "rate", "stable", "score", "clipped", "gap"]
    if question == "age":
        heads += ["weights above the cap", f"p against *{first}*", "p against fresh data"]
    else:
        heads += ["priced", "multiplier, least to most", "price / advantage", f"p against *{first}*"]
    lines = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for arm in names:
        own = values(runs, question, age, arm)
        cells = [f"*{arm}*: {dose.QUESTIONS[question][arm].says}", *figures(runs, question, age, arm)]
        cells.append(p_of(own, values(runs, question, age, first)) if arm != first else "")
        if question == "age":
            cells.append(p_of(own, values(runs, "age", 0, FRESH.get(arm, "clip"))) if age else "")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def p_of(one: Sequence[float], other: Sequence[float]) -> str:
    if not other:
        return ""
    found = dose.p_value(one, other)
    return f"**{found:.3f}**" if found < dose.P else f"{found:.3f}"


def values(runs: Runs, question: str, age: int, arm: str) -> list[float]:
    """The scores of an arm with all its seeds, else none."""
    found = [run["score"] for run in dose.fresh(runs, question, age, arm)]
    return found if len(found) == len(dose.SEEDS) else []


def figures(runs: Runs, question: str, age: int, arm: str) -> list[str]:
    """The cells of an arm: rates, scores, and whether its mechanism was at work."""
    here = dose.fresh(runs, question, age, arm)
    stable = dose.stable(runs, question, age, arm)
    cells = [f"{dose.best(runs, question, age, arm):g}", "none" if stable is None else f"{stable:g}"]
    cells.append(spread([run["score"] for run in here]))
    cells.append(f"{statistics.fmean(run['clipped'] for run in here):.4f}")
    cells.append(mean(here, "gap"))
    if question == "age":
        return [*cells, f"{statistics.fmean(run['above_cap'] for run in here):.5f}" if arm in dose.CAPS else ""]
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
    legend = "".join(
        f'<circle cx="{LEFT + 4}" cy="{TOP + HEIGHT + 58 + 18 * i}" r="5" fill="{colour(arm)}"/>'
        f'<text x="{LEFT + 16}" y="{TOP + HEIGHT + 62 + 18 * i}">{html.escape(f"{arm}: {dose.AGE[arm].says}")}</text>'
        for i, arm in enumerate(seen)
    )
    width, height = LEFT + 2 * (WIDTH + GAP), TOP + HEIGHT + 70 + 18 * len(seen)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><style>{STYLE}</style>'
        f'<title>Held-out pass@1 after {dose.STEPS} steps</title><text class="title" x="{LEFT}" y="22">'
        f"Held-out pass@1 after {dose.STEPS} steps: median and range of {len(dose.SEEDS)} seeds; dashed: before training</text>"
        f"{''.join(panels)}{legend}</svg>\n"
    )


def colour(arm: str) -> str:
    return COLOURS[list(dose.AGE).index(arm) % len(COLOURS)]


def panel(left: float, lines: Mapping[str, list[tuple[int, list[float]]]], ticks: Sequence[str], below: str) -> str:
    step = WIDTH / max(1, len(ticks) - 1)

    def at(place: int, value: float) -> str:
        return f"{left + place * step:.1f},{TOP + HEIGHT * (1 - value):.1f}"

    y = TOP + HEIGHT * (1 - dose.BEFORE)
    parts = [
        f'<path class="axis" d="M{left},{TOP} v{HEIGHT} h{WIDTH}"/>',
        f'<path class="axis" stroke-dasharray="4 4" d="M{left},{y:.1f} h{WIDTH}"/>',
        f'<text class="dim" x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">{html.escape(below)}</text>',
    ]
    parts += [
        f'<text class="dim" x="{left + i * step:.1f}" y="{TOP + HEIGHT + 17}" text-anchor="middle">{one}</text>'
        for i, one in enumerate(ticks)
    ]
    parts += [
        f'<text class="dim" x="{left - 8}" y="{TOP + HEIGHT * (1 - tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in (0, 0.5, 1)
    ]
    for arm, points in lines.items():
        band = [at(i, max(found)) for i, found in points] + [at(i, min(found)) for i, found in reversed(points)]
        middle = [at(i, statistics.median(found)) for i, found in points]
        parts.append(f'<polygon class="band" fill="{colour(arm)}" points="{" ".join(band)}"/>')
        parts.append(f'<polyline class="line" stroke="{colour(arm)}" points="{" ".join(middle)}"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="3" fill="{colour(arm)}"/>' for x, y in (p.split(",") for p in middle)]
    return "".join(parts)


if __name__ == "__main__":
    main()
