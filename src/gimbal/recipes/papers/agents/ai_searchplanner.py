from __future__ import annotations

from dataclasses import replace

from gimbal.environments.hidden_question import HiddenQuestion
from gimbal.recipes.core.ppo import ppo
from gimbal.rewards.solver import SolverScore
from gimbal.rewards.step_reader import StepReader
from gimbal.rewards.tool_calls import ToolCalls
from gimbal.rewards.working_steps import WorkingSteps
from gimbal.runtime.run import Run
from gimbal.workflows.dialogue import Dialogue


def ai_searchplanner() -> Run:
    """AI-SearchPlanner (arXiv:2508.20368): trains a planner for a frozen answerer, rewarded for its gain, a sound plan and few calls.

    The planner calls a calculator turn by turn, and a reader that cannot calculate answers from what both have written; the planner
    does not know which partial sum the reader is asked for. `rewards.2.weight` is the cost of a call; runs with several costs give
    the Pareto front (ops.estimators.pareto_front).
    """
    run = ppo()
    assert run.held_out is not None
    return replace(
        run,
        workflow=Dialogue(),
        tasks=HiddenQuestion(),
        rewards=(
            SolverScore(solver=StepReader(), samples=1, relative=True, name="gain"),
            WorkingSteps(measure="flawed", separator=" ", chained=True, name="unsound", weight=-0.2),
            ToolCalls(measure="spared", name="spared", weight=0.1),
        ),
        held_out=replace(run.held_out, rewards=run.rewards),
    )
