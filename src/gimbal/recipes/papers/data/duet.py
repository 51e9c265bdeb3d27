from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.budgets.token_priced import TokenPriced
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def duet() -> Run:
    """DUET's allocation (arXiv:2605.08441): rollouts by each task's expected variance, priced so that a step keeps to its tokens.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, budget=TokenPriced(tokens=4000))
