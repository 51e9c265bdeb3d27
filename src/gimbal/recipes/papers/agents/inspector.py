from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run
from gimbal.workflows.inspection import Inspection


def inspector() -> Run:
    """An inspector of a frozen solver's answers, paid for what it changes (PRISMA's second stage, arXiv:2601.05465, in small).

    The solver is gimbal-tiny, which works a sum out, and is then right, or guesses; the inspector begins as the same model. It reads
    the answer, and says by its first token whether the solver tries again, once. The evaluation counts right answers. Left out:
    planner, retriever, memory, the reward for evidence. On-policy except for staleness: one update per batch, at a ratio of 1.
    """
    run = grpo()
    workflow = Inspection(
        reward=ReasoningScore(), inspect="{prompt}{answer}\n<think>", redo="^[^~]", again="{prompt}", most=1
    )
    assert run.held_out is not None
    return replace(
        run,
        workflow=workflow,
        rewards=(),
        held_out=replace(run.held_out, workflow=replace(workflow, residual=False), rewards=(), samples=2),
        optimization=replace(run.optimization, learning_rate=3e-4),
        prompts_per_step=8,
        steps=30,
    )
