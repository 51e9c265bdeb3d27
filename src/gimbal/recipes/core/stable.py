from __future__ import annotations

from dataclasses import replace

from gimbal.controllers import Stability
from gimbal.objectives import ClippedRatio, MaskedWeight
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def stable() -> Run:
    """A closed loop sets the learning rate by how far each step moved the policy, and takes back what went too far.

    Under it are four updates a batch, clipped around the policy before them, and a weight for stale and coarse samplers that drops
    decisions above 5 (decoupled PPO of AReaL, arXiv:2505.24298). docs/stability.md says what it holds, and what it cannot.
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
