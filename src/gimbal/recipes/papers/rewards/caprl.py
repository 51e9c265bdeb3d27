from __future__ import annotations

from dataclasses import replace

from gimbal.environments.hidden_question import HiddenQuestion
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.solver import SolverScore
from gimbal.rewards.step_reader import StepReader
from gimbal.runtime.run import Run


def caprl() -> Run:
    """CapRL (arXiv:2509.22647): scores a text about a sum by four sampled questions that a reader answers from the text only.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = grpo()
    assert run.held_out is not None
    return replace(
        run,
        tasks=HiddenQuestion(),
        rewards=(
            SolverScore(
                solver=StepReader(), template="{question}\n{completion}", questions="questions", draws=4, samples=1
            ),
        ),
        regularisers=(KLPenalty(),),
        held_out=replace(run.held_out, rewards=run.rewards),
    )
