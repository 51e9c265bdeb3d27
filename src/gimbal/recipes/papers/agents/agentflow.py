from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.turn_samples import TurnBalanced, TurnSamples
from gimbal.objectives import ClippedRatio, KLPenalty
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def agentflow() -> Run:
    """AgentFlow (arXiv:2510.05592), in a terminal: each turn is a sample of its own, rewarded by the outcome, whatever its length.

    One agent plans, acts and answers here, where the paper's planner has an executor, a verifier and a memory beside it. Four updates
    per batch, as published: with one the ratio is 1 and no clip acts.
    """
    run = terminal()
    return replace(
        run,
        objective=ClippedRatio(clip_high=0.3),
        advantage=TurnSamples(),
        shaping=(TurnBalanced(),),
        regularisers=(KLPenalty(coef=0.001),),
        optimization=replace(run.optimization, learning_rate=1e-4, minibatches=4),
    )
