from __future__ import annotations

from dataclasses import replace

from gimbal.environments.form_pairs import FormPairs
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.recipes.core.dpo import dpo
from gimbal.runtime.run import Run


def specs_start() -> Run:
    """The cold start of Metis-SPECS (arXiv:2510.25801): of two right answers the well-formed one is preferred, and imitated.

    The preferred answers are written ones here; `gimbal eval --keep` collects the policy's own, as published. Reinforcement
    continues from there: `gimbal train specs policy.model=runs/NAME/model`.
    """
    return replace(dpo(), tasks=FormPairs(), regularisers=(RightLikelihood(coef=1.0),))
