from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def xrpo() -> Run:
    """XRPO (arXiv:2510.06672) without its seeded prompts: rollouts where they narrow an interval most; unlikely good answers gain more.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, budget=IntervalShared(), shaping=(NoveltySharpened(),))
