from __future__ import annotations

from dataclasses import replace

from gimbal.environments.demonstrations import held_out_tasks
from gimbal.environments.hidden_question import HiddenQuestion
from gimbal.objectives import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.solver import SolverScore
from gimbal.rewards.step_reader import StepReader
from gimbal.runtime.run import Run


def coda() -> Run:
    """CODA (arXiv:2508.20096): a planner is paid for what a frozen executor does with its plan: any action, and more the right one.

    The executor reads results from the plan and cannot calculate. Yours: `rewards.0.solver=Endpoint(model='EXECUTOR')`, and in
    `tasks` the states of runs that were judged successes, with the action taken there as the answer. Published are 1 for an
    action and up to 1 by its distance to that one; here .5 and, since texts have no distance, 1, so that `pass_rate` counts right
    actions. Published too: an expert like this for each application, then one planner by SFT on what all of them solved, which
    `gimbal eval --keep` writes: tasks="Within(tasks='a.jsonl,b.jsonl',column='pass_rate',above=0)".
    On-policy except for staleness, as grpo.
    """
    run = grpo()
    assert run.held_out is not None
    executed = SolverScore(solver=StepReader(), samples=1, name="executed")
    return replace(
        run,
        tasks=HiddenQuestion(),
        held_out=replace(run.held_out, tasks=HiddenQuestion(tasks=held_out_tasks(size=256)), rewards=(executed,)),
        rewards=(replace(executed, form_weight=0.5),),
        regularisers=(KLPenalty(coef=0.001),),
    )
