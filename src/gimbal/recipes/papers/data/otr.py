from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import ReturnToGo
from gimbal.objectives.surrogates.one_token_rollout import OneTokenRollout
from gimbal.ops import TokenMean
from gimbal.recipes.core.dpo import dpo
from gimbal.runtime.run import Run


def otr() -> Run:
    """OTR (arXiv:2509.26313): supervised on soundly worked chain sums, each token paid by the policy's own chance to draw it."""
    return replace(
        dpo(),
        rewards=(),
        num_generations=1,
        objective=OneTokenRollout(),
        advantage=ReturnToGo(),
        aggregation=TokenMean(),
    )
