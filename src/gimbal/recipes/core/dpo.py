from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.engines.offline import Offline
from gimbal.environments.choices import Choices
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.objectives.surrogates.direct_preference import DirectPreference
from gimbal.ops import SequenceSum
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.recorded import Recorded
from gimbal.runtime.run import Run
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.single import SingleTurn


def dpo() -> Run:
    """DPO (arXiv:2305.18290), offline: prefers the correctly reasoned one of two written answers to a chain sum."""
    run = grpo()
    assert run.held_out is not None
    return replace(
        run,
        engine=Offline(),
        workflow=Demonstrated(),
        tasks=Choices(),
        held_out=replace(run.held_out, engine=run.engine, workflow=SingleTurn(), rewards=run.rewards),
        rewards=(Recorded(),),
        prompts_per_step=32,
        num_generations=2,
        max_staleness=0,
        objective=DirectPreference(),
        advantage=GroupCentered(),
        aggregation=SequenceSum(),
        anchor=Behavior(),
        optimization=Optimization(learning_rate=3e-5),
    )
