"""A comparison as one SVG file: curves, scores, profiles and times. It follows the reader's dark mode."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from gimbal.report.comparison import ArmResult, Comparison, Estimate
from gimbal.report.verdict import amount, count, short
from gimbal.report.verdict import figure as score

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # colour-blind safe
WIDTH, PANEL, HEIGHT, GAP, TOP = 960, 400, 220, 90, 116
STYLE = """
 svg { background: #fff; font: 13px system-ui, sans-serif } text { fill: #222 } .dim { fill: #666; font-size: 11px }
 .axis { stroke: #bbb; fill: none } .title { font-weight: 600 } .line { fill: none; stroke-width: 2 } .band { opacity: .18 }
 @media (prefers-color-scheme: dark) { svg { background: #16181c } text { fill: #e6e6e6 }
  .dim { fill: #a0a4ab } .axis { stroke: #555 } }
"""


@dataclass(frozen=True)
class Panel:
    """Axes at (left, top), mapping data to pixels."""

    left: float
    top: float
    x: tuple[float, float]
    y: tuple[float, float]

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x[0]) / ((self.x[1] - self.x[0]) or 1)
        up = (y - self.y[0]) / ((self.y[1] - self.y[0]) or 1)
        return self.left + across * PANEL, self.top + HEIGHT - up * HEIGHT

    def path(self, points: Sequence[tuple[float, float]]) -> str:
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*point) for point in points))

    def frame(self, title: str, below: str) -> str:
        """Axes with ticks at round numbers."""
        parts = [
            f'<text class="title" x="{self.left}" y="{self.top - 12}">{html.escape(title)}</text>',
            f'<path class="axis" d="M{self.left},{self.top} v{HEIGHT} h{PANEL}"/>',
            f'<text class="dim" x="{self.left + PANEL}" y="{self.top + HEIGHT + 34}" text-anchor="end">{html.escape(below)}</text>',
        ]
        for value in ticks(*self.x):
            x, _ = self.at(value, self.y[0])
            parts.append(
                f'<text class="dim" x="{x:.1f}" y="{self.top + HEIGHT + 17}" text-anchor="middle">{count(value)}</text>'
            )
        for value in ticks(*self.y):
            _, y = self.at(self.x[0], value)
            parts.append(
                f'<text class="dim" x="{self.left - 8}" y="{y + 4:.1f}" text-anchor="end">{count(value)}</text>'
            )
        return "".join(parts)


def figure(comparison: Comparison) -> str:
    """The SVG's text. Panels without data are omitted."""
    arms = list(zip(comparison.arms, (COLOURS * len(comparison.arms))[: len(comparison.arms)], strict=False))
    name = short(comparison.metric)
    drawn = []
    if all(arm.curve for arm, _ in arms):
        level = comparison.thresholds[0] if comparison.thresholds else None
        drawn.append(
            (f"{comparison.curve or name}", f"{comparison.unit} generated", [(arm.curve, c) for arm, c in arms], level)
        )
    if any(len(arm.runs) > 1 for arm, _ in arms):
        drawn.append(
            (f"share of runs with {name} above", f"{name}", [(arm.profile, colour) for arm, colour in arms], None)
        )
    panels = [lines(place, *panel) for place, panel in enumerate(drawn)]
    panels.append(dots(len(panels), f"final {name}, by run", [(a.scores, a.score, c) for a, c in arms], arms, score))
    if comparison.thresholds:
        of = [(a.tokens.times, a.tokens.mean, c) for a, c in arms if a.tokens is not None]
        panels.append(dots(len(panels), f"{comparison.unit} to {comparison.thresholds[0]:g}, by run", of, arms, amount))
    height = TOP + (HEIGHT + GAP) * ((len(panels) + 1) // 2)
    legend = "".join(
        f'<circle cx="{60 + 200 * i}" cy="86" r="5" fill="{colour}"/>'
        f'<text x="{72 + 200 * i}" y="90">{html.escape(arm.name[:24])} ({len(arm.runs)} runs)</text>'
        for i, (arm, colour) in enumerate(arms)
    )
    said = "".join(
        f'<text x="54" y="{24 + 18 * i}" class="title">{html.escape(line)}</text>'
        for i, line in enumerate(textwrap.wrap(comparison.verdict, 125, max_lines=3, placeholder=" …"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"><style>{STYLE}</style>'
        f"<title>{html.escape(comparison.verdict)}</title>"
        f"{said}{legend}{''.join(panels)}</svg>\n"
    )


def place(number: int) -> tuple[float, float]:
    """Left and top of a panel, with two panels per row."""
    return 54.0 + (number % 2) * (PANEL + 80), 16.0 + TOP + (number // 2) * (HEIGHT + GAP)


def lines(
    number: int, title: str, below: str, drawn: Sequence[tuple[list[list[float]], str]], level: float | None
) -> str:
    """Rows of (x, y, low, high): a line with a band; ``level`` is drawn across."""
    rows = [row for rows, _ in drawn for row in rows]
    heights = [value for row in rows for value in row[1:] if math.isfinite(value)] + ([level] if level else [])
    panel = Panel(*place(number), x=(min(r[0] for r in rows), max(r[0] for r in rows)), y=(min(heights), max(heights)))
    parts = [panel.frame(title, below)]
    for rows, colour in drawn:
        banded = [row for row in rows if math.isfinite(row[2]) and math.isfinite(row[3])]
        if banded:
            outline = [(r[0], r[3]) for r in banded] + [(r[0], r[2]) for r in reversed(banded)]
            parts.append(f'<polygon class="band" fill="{colour}" points="{panel.path(outline)}"/>')
        parts.append(
            f'<polyline class="line" stroke="{colour}" points="{panel.path([(row[0], row[1]) for row in rows])}"/>'
        )
    if level is not None:
        (x, y), (end, _) = panel.at(panel.x[0], level), panel.at(panel.x[1], level)
        parts.append(f'<path class="axis" stroke-dasharray="4 4" d="M{x:.1f},{y:.1f} H{end:.1f}"/>')
    return "".join(parts)


def dots(
    number: int,
    title: str,
    drawn: Sequence[tuple[list[list[float]], Estimate, str]],
    arms: Sequence[tuple[ArmResult, str]],
    words: Callable[[Estimate], str],
) -> str:
    """One row per arm: a dot per run, the interquartile mean as a bar with its interval. Censored runs are counted, not drawn."""
    values = [value for of, mean, _ in drawn for value in [*chain(*of), mean.value, mean.low, mean.high]]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    margin = 0.05 * ((max(finite) - min(finite)) or abs(max(finite)) or 1)
    panel = Panel(*place(number), x=(min(finite) - margin, max(finite) + margin), y=(float(len(drawn)), 0.0))
    parts = [Panel(panel.left, panel.top, panel.x, (0.0, 0.0)).frame(title, "")]
    for row, ((of, mean, colour), (arm, _)) in enumerate(zip(drawn, arms, strict=True)):
        runs = list(chain(*of))
        for value in runs:
            if math.isfinite(value):
                x, y = panel.at(value, row + 0.62)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" opacity=".6"/>')
        if math.isfinite(mean.value):
            x, y = panel.at(mean.value, row + 0.38)
            parts.append(f'<path stroke="{colour}" stroke-width="4" d="M{x:.1f},{y - 7:.1f} v14"/>')
            if mean.low is not None and mean.high is not None:
                low, high = (panel.at(min(max(end, panel.x[0]), panel.x[1]), 0.0)[0] for end in (mean.low, mean.high))
                parts.append(f'<path stroke="{colour}" stroke-width="2" d="M{low:.1f},{y:.1f} H{high:.1f}"/>')
        x, y = panel.at(panel.x[0], row + 0.14)
        missing = sum(not math.isfinite(value) for value in runs)
        told = [words(mean)] * math.isfinite(mean.value) + [f"{missing} of {len(runs)} censored"] * (missing > 0)
        label = f"{arm.name[:24]}: {', '.join(told)}"
        parts.append(f'<text class="dim" x="{x + 8:.1f}" y="{y:.1f}">{html.escape(label)}</text>')
    return "".join(parts)


def ticks(low: float, high: float) -> list[float]:
    """Three to six round numbers within a range; none for an empty one."""
    if not high > low:
        return []
    raw = (high - low) / 4
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(step for step in (unit, 2 * unit, 5 * unit, 10 * unit) if step >= raw)
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step + 1e-9) + 1)]
