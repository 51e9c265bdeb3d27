from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.edge_averaged import EdgeAveraged
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def salt() -> Run:
    """SALT (arXiv:2510.20022), in a terminal: averages the advantage of a turn over the right and wrong episodes that share it.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(terminal(), shaping=(EdgeAveraged(),))
