"""The section of claims/README.md on holds.py; page.py writes it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import grid
import holds

from gimbal.ops.confidence import student_width

Runs = Sequence[Mapping[str, Any]]
CLOSE = 0.02  # as the rule says


def section(runs: Runs) -> str:
    lines = [
        "## What each part of the loop is for, and what it holds (`holds.py`)",
        "",
        "\n\n".join((holds.__doc__ or "").split("\n\n")[1:-1]),
        "",
        f"{len(runs)} of {len(holds.trials())} runs are recorded.",
        "",
        f"**Ablations.** Before training: {before(holds.CORNER):.3f}.",
        "",
        ablations(runs),
        "",
        "**Levers.**",
        "",
        levers(runs),
        "",
        f"If no setting changed anything, one or more of {len(holds.LEVERS)} would be above the whole in each of three seeds with "
        f"probability {lucky(len(holds.LEVERS), 3):.2f}; the rule also asks for {CLOSE} in the mean.",
        "",
        "**Constant.**",
        "",
        constant(runs),
        "",
        f"**Faults.** Before training: {before(holds.STALE):.3f}.",
        "",
        faults(runs),
        "",
    ]
    return "\n".join(lines)


def before(cell: grid.Cell) -> float:
    """What the first policy scores."""
    return grid.start(grid.load(), cell)


def ablations(runs: Runs) -> str:
    lines = ["| taken out | scores | mean | less the whole | collapsed | by the rule |", "| --- " * 6 + "|"]
    whole = holds.of(runs, "loop", holds.CORNER, "")
    for change in holds.WITHOUT:
        if not (found := holds.of(runs, "loop", holds.CORNER, change)):
            continue
        name = f"*{change}*" if change else "nothing"
        row = [f"{name}, added" if change == "fallback" else name, ", ".join(f"{score:.2f}" for score in found)]
        row.append(f"{statistics.fmean(found):.3f}")
        row.append(f"{statistics.fmean(found) - statistics.fmean(whole):+.3f}" if change and whole else "")
        row += [str(lost(found, holds.CORNER)), verdict(found, whole, change)]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def verdict(found: Sequence[float], whole: Sequence[float], change: str) -> str:
    """Whether the part is in the recipe, by the rule; nothing until all seeds are there."""
    if not change or len(found) < 5 or len(whole) < 5:
        return ""
    apart = statistics.fmean(found) - statistics.fmean(whole)
    if change == "fallback":
        return "comes in" if apart > CLOSE or lost(found, holds.CORNER) < lost(whole, holds.CORNER) else "stays out"
    return "stays" if apart < -CLOSE or lost(found, holds.CORNER) else "not needed here"


def levers(runs: Runs) -> str:
    lines = ["| set by hand | scores | mean | less the whole, each seed | by the rule |", "| --- " * 5 + "|"]
    whole = holds.of(runs, "loop", holds.CORNER, "")
    for change in holds.LEVERS:
        found = holds.of(runs, "loop", holds.CORNER, change)
        apart = [one - other for one, other in zip(found, whole, strict=False)]
        if not apart:
            continue
        row = [f"*{change}*", ", ".join(f"{score:.2f}" for score in found), f"{statistics.fmean(found):.3f}"]
        row.append(", ".join(f"{one:+.2f}" for one in apart))
        row.append(
            ""
            if len(found) < 3
            else "deserves a controller"
            if min(apart) > 0 and statistics.fmean(apart) > CLOSE
            else "no"
        )
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def lucky(levers: int, seeds: int) -> float:
    """P(some of so many settings is above the whole in each seed) if all scores of a seed come from one distribution.

    A setting beats a whole at quantile u of its seed with 1 - u, and all settings meet the same wholes:
    1 - E[(1 - prod(1 - u))^levers], expanded, with E[(1 - u)^k] = 1 / (k + 1).
    """
    return 1 - sum(math.comb(levers, k) * (-1) ** k / (k + 1) ** seeds for k in range(levers + 1))


def constant(runs: Runs) -> str:
    """With the constant and without it, by cell; the mean difference of both seeds, and the rule's verdict."""
    lines = ["| cell | without | with | difference |", "| --- " * 4 + "|"]
    apart, collapsed = [], 0
    for cell in dict.fromkeys(job.cell for job in holds.elsewhere()):
        without, tried = (holds.of(runs, "loop", cell, change) for change in ("", holds.CONSTANT))
        if len(without) < 2 or len(tried) < 2:
            continue
        apart.append(statistics.fmean(tried) - statistics.fmean(without))
        collapsed += lost(tried, cell._replace(rate=0.0))
        row = [", ".join(map(str, cell)), *(", ".join(f"{x:.2f}" for x in found) for found in (without, tried))]
        lines.append(f"| {' | '.join(row)} | {apart[-1]:+.3f} |")
    if len(apart) < 10:
        return "\n".join([*lines, "", f"{len(apart)} of 10 cells are recorded."])
    middle, half = statistics.fmean(apart), statistics.stdev(apart) * student_width(len(apart), 0.025)
    verdict = "comes into the recipe" if middle > half and not collapsed else "stays out of the recipe"
    tail = f"Mean {middle:+.3f} ({middle - half:+.3f} to {middle + half:+.3f}), {collapsed} collapsed: it {verdict}."
    return "\n".join([*lines, "", tail])


def lost(found: Sequence[float], cell: grid.Cell) -> int:
    return sum(score < before(cell) for score in found)


def faults(runs: Runs) -> str:
    lines = ["| fault | with the loop | mean | collapsed | without it | collapsed |", "| --- " * 6 + "|"]
    for change in holds.FAULTS:
        row, counts = [f"*{change}*"], []
        for arm in ("loop", "decoupled"):
            found = holds.of(runs, arm, holds.STALE, change)
            counts.append(len(found))
            row.append(", ".join(f"{score:.2f}" for score in found))
            if arm == "loop":
                row.append(f"{statistics.fmean(found):.3f}" if found else "")
            row.append(str(lost(found, holds.STALE)) if found else "")
        if any(counts):
            lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)
