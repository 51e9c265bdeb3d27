from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.minimum_variance import MinimumVarianceCentered
from gimbal.controllers.effective_sample_size import EffectiveSampleSize
from gimbal.objectives.surrogates.sequence_weight import SequenceWeight
from gimbal.ops import ConstantMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def vcpo() -> Run:
    """VCPO (arXiv:2602.17616): scales steps by the effective sample size; minimum-variance baseline; up to eight versions stale."""
    objective = SequenceWeight()
    return replace(
        grpo(),
        objective=objective,
        advantage=MinimumVarianceCentered(cap=objective.cap),
        aggregation=ConstantMean(length=32.0),
        step_size=EffectiveSampleSize(),
        max_staleness=8,
        ahead="full",
    )
