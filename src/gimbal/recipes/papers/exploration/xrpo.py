from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.budgets.seeded import Seeded
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def xrpo() -> Run:
    """XRPO (arXiv:2510.06672): rollouts where they narrow an interval most, and examples for tasks that only failed.

    Unlikely right answers gain more. gimbal-tiny does not understand seeded prompts, where hardly any of its answers is right:
    start from `xrpo_start`, which says how.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    budget = Seeded(inside=IntervalShared())
    return replace(grpo(), **AGAIN, budget=budget, shaping=(NoveltySharpened(),))
