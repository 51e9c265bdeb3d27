from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.regularisers.kl_hinge import KLHinge
from gimbal.objectives.surrogates.contrastive_likelihood import ContrastiveLikelihood
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def drpo() -> Run:
    """DRPO (arXiv:2510.04474): shorter correct answers gain more, none is pushed down, and a hinge bounds the update.

    Four updates per batch, as published: in the first update the policy equals its anchor, so the hinge does not act.
    """
    run = grpo()
    return replace(
        run,
        objective=ContrastiveLikelihood(budget=64),
        regularisers=(KLHinge(),),
        optimization=replace(run.optimization, minibatches=4),
    )
