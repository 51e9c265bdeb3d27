"""FlowBP on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.cached_steps import CachedSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.recipes.papers.denoising.draft import draft
from gimbal.runtime.run import UpdateRun


def flow_bp() -> UpdateRun:
    """FlowBP (arXiv:2606.11075): `draft` through four steps of the recorded path, joined by one Jacobian; no path is walked again.

    On-policy. This is its Bridge; `update.steps.bridge=0` is its Sparse, without a Jacobian. Left out: its leaps by Lagrange
    polynomials. Not shown here: text-to-image models of billions of parameters, and learned judges of taste. No guidance.
    """
    run = draft()
    return replace(
        run,
        update=RewardGradient(
            steps=CachedSteps(count=4, late=1.0, scale=0.0, bridge=0.5),
            coef=10.0,
            optimization=run.update.optimization,
        ),
    )
