from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import KLPenalty, ValueLoss
from gimbal.policies.decoded import Decoded
from gimbal.recipes.papers.control.pendulum import pendulum
from gimbal.runtime.run import Run


def gorl() -> Run:
    """GoRL (arXiv:2512.02581) on Pendulum-v1: PPO over the noise of a frozen flow, which policy.flow names; without one, PPO.

    The penalty keeps the noise near the first policy's, N(0, 1).
    """
    return replace(
        pendulum(),
        policy=Decoded(observations=3, actions=1, bound=2.0),
        regularisers=(ValueLoss(coef=0.5), KLPenalty(coef=1e-3, estimator="k2")),
    )
