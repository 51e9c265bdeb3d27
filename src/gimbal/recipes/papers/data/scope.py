from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.environments.choices import Choices
from gimbal.objectives.surrogates.guided_ratio import GuidedRatio
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run
from gimbal.workflows.guided import Guided


def scope() -> Run:
    """SCOPE (arXiv:2602.24110): completes the correct prefix of a failed answer from a worked solution, with a shaped ratio.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    The learning rate is lower than grpo's: at 1e-4 the evaluation falls again after 12 steps.
    """
    run = grpo()
    return replace(
        run,
        tasks=Choices(part="answer", count=2),
        workflow=Guided(),
        filters=(StepRepair(),),
        num_generations=9,
        objective=GuidedRatio(),
        optimization=replace(run.optimization, learning_rate=3e-5),
    )
