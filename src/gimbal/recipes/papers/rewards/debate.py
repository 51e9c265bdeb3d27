from __future__ import annotations

from dataclasses import replace

from gimbal.environments.contested import Contested
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.debate import JUDGED, Debated
from gimbal.rewards.evidence_count import EvidenceCount
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run

SHARE, BONUS = 0.25, 5.0


def debate() -> Run:
    """Justifiable answers (arXiv:2402.15826): part of the reward is winning a debate against a bare correct answer.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    The learning rate is lower than grpo's: at 1e-4 the evaluation falls again after 12 steps.
    """
    judge = JudgeScore(judge=EvidenceCount(), template=JUDGED)
    run = grpo()
    assert run.held_out is not None
    return replace(
        run,
        tasks=Contested(),
        rewards=(ReasoningScore(weight=1 - SHARE), Debated(judge=judge, reveals=2, weight=SHARE * BONUS)),
        held_out=replace(run.held_out, rewards=run.rewards),
        optimization=replace(run.optimization, learning_rate=3e-5),
    )
