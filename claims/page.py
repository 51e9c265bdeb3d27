"""Writes claims/README.md and the figures from the recorded results: python claims/page.py. A test holds them against the records."""

from __future__ import annotations

import html
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import dose  # noqa: E402

from gimbal.report.figure import COLOURS, STYLE  # noqa: E402

WIDTH, HEIGHT, LEFT, TOP, GAP = 250, 200, 46, 54, 60  # of a panel, its first corner, and between two
NAMES = {"age": "age of the data (versions)", "precision": "precision of the sampler", "group": "rollouts a group"}

HEAD = """# Claims

One file a claim: the question, the rule by which it is decided, the command, the record. Everything below is written by
`python claims/page.py` from the records, and a test recomputes it.

"""


def main() -> None:
    for name, text in pages().items():
        (HERE / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    runs = json.loads(dose.RECORD.read_text())
    found = {"README.md": HEAD + section(runs), "dose.svg": overview(runs)}
    return found | {f"dose-{method}.svg": overview(runs, (method,)) for method in dose.METHODS}


def section(runs: Sequence[Mapping[str, Any]]) -> str:
    whole, seeds = len(dose.cells()), sorted({run["seed"] for run in runs})
    lines = ["## Dose and response (`dose.py`)", "", "![Held-out pass@1 against each dose](dose.svg)", ""]
    lines += ["\n\n".join((dose.__doc__ or "").split("\n\n")[1:3]), ""]
    lines.append(
        f"{len(runs)} of {whole} runs are recorded, seeds {seeds[0]} to {seeds[-1]}; a dose with fewer is left out."
    )
    lines.append("")
    for axis in dose.AXES:
        lines += [
            f"**{NAMES[axis].capitalize()}.** Median (least to most); bold where the method withstands the dose.",
            "",
        ]
        lines += [dose.table(list(runs), axis), ""]
    return "\n".join(lines)


def overview(runs: Sequence[Mapping[str, Any]], methods: Sequence[str] = tuple(dose.METHODS)) -> str:
    """An SVG of a panel an axis: the median of each method over its seeds, least to most behind it."""
    panels = [panel(runs, methods, axis, LEFT + number * (WIDTH + GAP)) for number, axis in enumerate(dose.AXES)]
    rows = [
        f'<circle cx="{LEFT + 4}" cy="{TOP + HEIGHT + 58 + 18 * i}" r="5" fill="{colour(method)}"/>'
        f'<text x="{LEFT + 16}" y="{TOP + HEIGHT + 62 + 18 * i}">{html.escape(dose.METHODS[method])}</text>'
        for i, method in enumerate(methods)
    ]
    width, height = LEFT + len(dose.AXES) * (WIDTH + GAP), TOP + HEIGHT + 70 + 18 * len(methods)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><style>{STYLE}</style>'
        f'<title>Held-out pass@1 after 60 steps against three doses</title><text class="title" x="{LEFT}" y="22">'
        f"Held-out pass@1 in the sampler after 60 steps, median and range of {dose.SEEDS} seeds; dashed: collapsed below</text>"
        f"{''.join(panels)}{''.join(rows)}</svg>\n"
    )


def colour(method: str) -> str:
    return COLOURS[list(dose.METHODS).index(method)]


def panel(runs: Sequence[Mapping[str, Any]], methods: Sequence[str], axis: str, left: float) -> str:
    doses = dose.AXES[axis]
    step = WIDTH / max(1, len(doses) - 1)

    def at(place: int, value: float) -> str:
        return f"{left + place * step:.1f},{TOP + HEIGHT * (1 - value):.1f}"

    y = TOP + HEIGHT * (1 - dose.COLLAPSED)
    parts = [
        f'<path class="axis" d="M{left},{TOP} v{HEIGHT} h{WIDTH}"/>',
        f'<path class="axis" stroke-dasharray="4 4" d="M{left},{y:.1f} h{WIDTH}"/>',
        f'<text class="dim" x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">{NAMES[axis]}</text>',
    ]
    parts += [
        f'<text class="dim" x="{left + i * step:.1f}" y="{TOP + HEIGHT + 17}" text-anchor="middle">{one}</text>'
        for i, one in enumerate(doses)
    ]
    parts += [
        f'<text class="dim" x="{left - 8}" y="{TOP + HEIGHT * (1 - tick) + 4:.1f}" text-anchor="end">{tick:g}</text>'
        for tick in (0, 0.5, 1)
    ]
    for method in methods:
        here = [(i, dose.exams(list(runs), method, axis, one)) for i, one in enumerate(doses)]
        here = [(i, values) for i, values in here if len(values) == dose.SEEDS]
        if not here:
            continue
        band = [at(i, max(values)) for i, values in here] + [at(i, min(values)) for i, values in reversed(here)]
        line = " ".join(at(i, statistics.median(values)) for i, values in here)
        parts.append(f'<polygon class="band" fill="{colour(method)}" points="{" ".join(band)}"/>')
        parts.append(f'<polyline class="line" stroke="{colour(method)}" points="{line}"/>')
        parts += [
            f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="3" fill="{colour(method)}"/>'
            for point in line.split()
        ]
    return "".join(parts)


if __name__ == "__main__":
    main()
