from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import ReturnToGo
from gimbal.objectives.surrogates.one_token_rollout import OneTokenRollout
from gimbal.ops import TokenMean
from gimbal.recipes.core.dpo import dpo
from gimbal.runtime.run import Run


def otr() -> Run:
    """OTR (arXiv:2509.26313): SFT on correctly reasoned chain sums, each token weighted by the policy's own probability of it."""
    return replace(
        dpo(),
        rewards=(),
        num_generations=1,
        objective=OneTokenRollout(),
        advantage=ReturnToGo(),
        aggregation=TokenMean(),
    )
