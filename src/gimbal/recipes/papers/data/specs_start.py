from __future__ import annotations

from dataclasses import replace

from gimbal.environments.form_pairs import FormPairs
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.recipes.core.dpo import dpo
from gimbal.runtime.run import Run


def specs_start() -> Run:
    """Metis-SPECS, cold start (arXiv:2510.25801): prefers and imitates the well-formatted one of two correct answers.

    The preferred answers are written here; `gimbal eval --keep` collects the policy's own, as published. Continue with stage 2:
    `gimbal train specs policy.model=runs/NAME/model`.
    """
    return replace(dpo(), tasks=FormPairs(), regularisers=(RightLikelihood(coef=1.0),))
