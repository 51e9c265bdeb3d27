from __future__ import annotations

from dataclasses import replace

from gimbal.environments.hidden_question import HiddenQuestion
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.solver import SolverScore
from gimbal.rewards.step_reader import StepReader
from gimbal.runtime.run import Run


def doge() -> Run:
    """DoGe, stage 1 (arXiv:2512.06835): describe a sum without its question; rewarded if a frozen solver can answer from that text.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    Continue with stage 2: `gimbal train doge_apply policy.model=runs/NAME/model`. For another round, `gimbal eval --keep` finds the
    tasks that are rarely solved.
    """
    run = grpo()
    assert run.held_out is not None
    return replace(
        run,
        tasks=HiddenQuestion(),
        rewards=(SolverScore(solver=StepReader(), samples=1, form_weight=0.1),),
        num_generations=4,
        held_out=replace(run.held_out, rewards=run.rewards),
    )
