"""What the figures of both claims share: a panel's frame, the legend below, and the drawing around them."""

from __future__ import annotations

import html
from collections.abc import Sequence

from gimbal.report.figure import STYLE

WIDTH, HEIGHT, LEFT, TOP, GAP = 300, 200, 46, 54, 60  # of a panel, its first corner, and between two


def frame(left: float, ticks: Sequence[str], below: str) -> list[str]:
    """Axes from 0 to 1, with these ticks evenly spaced and their name below."""
    step = WIDTH / max(1, len(ticks) - 1)
    parts = [
        f'<path class="axis" d="M{left},{TOP} v{HEIGHT} h{WIDTH}"/>',
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
    return parts


def drawing(name: str, title: str, panels: Sequence[str], legend: Sequence[tuple[str, str]]) -> str:
    """An SVG of two panels; ``legend``: (colour, text) of each arm."""
    lines = "".join(
        f'<circle cx="{LEFT + 4}" cy="{TOP + HEIGHT + 58 + 18 * i}" r="5" fill="{colour}"/>'
        f'<text x="{LEFT + 16}" y="{TOP + HEIGHT + 62 + 18 * i}">{html.escape(text)}</text>'
        for i, (colour, text) in enumerate(legend)
    )
    width, height = LEFT + 2 * (WIDTH + GAP), TOP + HEIGHT + 70 + 18 * len(legend)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"><style>{STYLE}</style>'
        f'<title>{name}</title><text class="title" x="{LEFT}" y="22">{title}</text>{"".join(panels)}{lines}</svg>\n'
    )
