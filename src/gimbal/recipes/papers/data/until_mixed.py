from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def until_mixed() -> Run:
    """Groups that end once they are mixed: 4 rollouts at a time, up to 16, while outcomes are alike (sequential sampling, textbook).

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, num_generations=16, budget=UntilMixed(), filters=(ZeroVariance(),))
