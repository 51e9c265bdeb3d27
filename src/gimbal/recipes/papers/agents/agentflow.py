from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.turn_samples import TurnBalanced, TurnSamples
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.objectives import ClippedRatio, KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def agentflow() -> Run:
    """AgentFlow (arXiv:2510.05592): each reasoning step is a sample of its own, with the outcome as its reward, whatever its length.

    Four updates per batch, as published: with one the ratio is 1 and no clip acts.
    """
    run = grpo()
    return replace(
        run,
        filters=(StepTurns(separator=" "),),
        objective=ClippedRatio(clip_high=0.3),
        advantage=TurnSamples(),
        shaping=(TurnBalanced(),),
        regularisers=(KLPenalty(coef=0.001),),
        optimization=replace(run.optimization, minibatches=4),
    )
