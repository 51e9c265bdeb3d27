from __future__ import annotations

from dataclasses import replace

from gimbal.controllers import Stability
from gimbal.objectives import ClippedRatio, MaskedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def stable() -> Run:
    """The closed loop: adapts the learning rate to how far each step moved the policy, and scales back steps that went too far.

    Built on decoupled PPO (AReaL, arXiv:2505.24298): four updates per batch, clipped around the policy before them, and an importance
    weight for stale and low-precision samplers that drops decisions above 5. Guarantees and failure cases: docs/stability.md.
    """
    run = grpo()
    return replace(
        run,
        objective=ClippedRatio(),
        correction=MaskedWeight(low=0.0, high=5.0),
        aggregation=TokenMean(),
        optimization=replace(run.optimization, minibatches=4),
        stability=Stability(),
    )
