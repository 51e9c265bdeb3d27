from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.shapings.positive_amplified import PositiveAmplified
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.objectives.surrogates.reinforce import Reinforce
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run
from gimbal.workflows.retrying import Retrying
from gimbal.workflows.single import SingleTurn


def r3l() -> Run:
    """R3L (arXiv:2601.03715): retries failed rollouts from their first wrong step, and trains only what follows it.

    Full successes are weighted like demonstrations, failures stay mild, and nothing is clipped. Half of the rollouts are retries, as
    published; the wrong step is found by checking its arithmetic, not by the policy's own reflection.
    """
    run = grpo()
    assert run.held_out is not None
    return replace(
        run,
        workflow=Retrying(),
        held_out=replace(run.held_out, workflow=SingleTurn()),
        filters=(ZeroVariance(),),
        objective=Reinforce(),
        advantage=GroupCentered(),
        shaping=(PositiveAmplified(),),
        aggregation=TokenMean(),
    )
