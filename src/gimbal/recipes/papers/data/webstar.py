from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import ReturnToGo
from gimbal.dataflow.filters.right_steps import RightSteps
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def webstar() -> Run:
    """WebSTAR's filter (2026): the policy imitates the correct steps of its own rollouts, right or wrong; other steps stay as context.

    In the paper the steps come from a stronger web agent, and a judge grades them; here an equation is right or wrong.
    """
    return replace(
        grpo(),
        filters=(RightSteps(separator=" ", chained=True),),
        objective=Likelihood(),
        advantage=ReturnToGo(),
        aggregation=TokenMean(),
    )
