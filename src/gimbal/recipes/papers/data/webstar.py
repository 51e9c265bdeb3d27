from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import ReturnToGo
from gimbal.dataflow.filters.right_steps import RightSteps
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def webstar() -> Run:
    """WebSTAR's filter (2026): the policy imitates the right steps of what it wrote, whatever it came to; the others stay as context.

    The paper's steps are a web agent's, a stronger one's, and a judge grades them; here an equation is right or not.
    """
    return replace(
        grpo(),
        filters=(RightSteps(separator=" ", chained=True),),
        objective=Likelihood(),
        advantage=ReturnToGo(),
        aggregation=TokenMean(),
    )
