from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.set_diversity import SetDiversity
from gimbal.runtime.run import Run


def sgrpo() -> Run:
    """SGRPO (2026): two sets of rollouts per task compete on diversity, credited to each member by what it adds.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run, score = grpo(), ReasoningScore()
    assert run.held_out is not None
    return replace(
        run,
        rewards=(replace(score, weight=0.8), SetDiversity(sets=2, weight=0.2)),
        advantage=LeaveOneOut(),
        held_out=replace(run.held_out, rewards=(score,)),  # one rollout alone has no diversity
    )
