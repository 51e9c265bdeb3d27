from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.regularisers.kl_hinge import KLHinge
from gimbal.objectives.surrogates.contrastive_likelihood import ContrastiveLikelihood
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def drpo() -> Run:
    """DRPO (arXiv:2510.04474): shorter right answers gain more, no right answer is pushed down, and the step is hinged.

    Four updates a batch, as published: in the first the policy is its anchor, and the hinge is open.
    """
    run = grpo()
    return replace(
        run,
        objective=ContrastiveLikelihood(budget=64),
        regularisers=(KLHinge(),),
        optimization=replace(run.optimization, minibatches=4),
    )
