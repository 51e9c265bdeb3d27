from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.shapings.positive_amplified import PositiveAmplified
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.objectives.surrogates.reinforce import Reinforce
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def r3l() -> Run:
    """R3L's learning half (arXiv:2601.03715): full weight for successes, little for failures, no clip; without the retries."""
    return replace(
        grpo(),
        filters=(ZeroVariance(),),
        objective=Reinforce(),
        advantage=GroupCentered(),
        shaping=(PositiveAmplified(),),
        aggregation=TokenMean(),
    )
