from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.budgets.shadow_priced import ShadowPriced
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def rollout_gdro() -> Run:
    """Rollout-GDRO's square-root law (arXiv:2601.19280): more rollouts where outcomes vary more, at one price and the same mean.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, budget=ShadowPriced())
