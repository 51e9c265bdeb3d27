from __future__ import annotations

from dataclasses import replace

from gimbal.environments.demonstrations import CHAIN_SUM, HELD_OUT_SIZE, held_out_tasks, training_tasks
from gimbal.objectives.regularisers.observation_likelihood import ObservationLikelihood
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.dialogue import Dialogue


def echo() -> Run:
    """ECHO (arXiv:2605.24517): a calculator answers after every "="; the policy also learns to predict it on longer sums than it knows.

    Terms have two or three digits: with three only, almost no answer was correct, so only the calculator's text trained the policy.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    longer = {**CHAIN_SUM, "min_digits": 2, "max_digits": 3}
    return replace(
        grpo(),
        workflow=Dialogue(),
        tasks=replace(
            training_tasks(), parameters=longer, exclude=replace(held_out_tasks(size=HELD_OUT_SIZE), parameters=longer)
        ),
        held_out=HeldOut(tasks=replace(held_out_tasks(size=256), parameters=longer)),
        regularisers=(ObservationLikelihood(),),
        aggregation=TokenMean(),
    )
