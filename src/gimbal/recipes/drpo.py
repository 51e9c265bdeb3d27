from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.kl_hinge import KLHinge
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def drpo() -> Run:
    """DRPO (arXiv:2510.04474): shorter right answers gain more, no right answer is pushed down, and the step is hinged."""
    return replace(grpo(), objective=ContrastiveLikelihood(budget=64), regularisers=(KLHinge(),))
