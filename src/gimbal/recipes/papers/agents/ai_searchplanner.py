from __future__ import annotations

from dataclasses import replace

from gimbal.environments.hidden_question import HiddenQuestion
from gimbal.recipes.core.ppo import ppo
from gimbal.rewards.solver import SolverScore
from gimbal.rewards.step_reader import StepReader
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run


def ai_searchplanner() -> Run:
    """AI-SearchPlanner (arXiv:2508.20368): trains a planner for a frozen answerer, rewarded for its gain, a sound plan and few steps.

    `rewards.2.weight` is the cost of a step; runs with several costs give the Pareto front (ops.estimators.pareto_front).
    """
    run = ppo()
    assert run.held_out is not None
    return replace(
        run,
        tasks=HiddenQuestion(),
        rewards=(
            SolverScore(solver=StepReader(), samples=1, relative=True, name="gain"),
            WorkingSteps(measure="flawed", separator=" ", chained=True, name="unsound", weight=-0.2),
            WorkingSteps(measure="spared", separator=" ", most=8, name="spared", weight=0.1),
        ),
        held_out=replace(run.held_out, rewards=run.rewards),
    )
