from __future__ import annotations

from dataclasses import replace

from gimbal.environments.demonstrations import held_out_tasks
from gimbal.environments.multiple_choice import MultipleChoice
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.answer_consistency import AnswerConsistency
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import HeldOut, Run


def acre() -> Run:
    """ACRE (arXiv:2510.10104): full reward for a correct choice only if its reasoning gives it again with the options reordered.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        tasks=MultipleChoice(),
        held_out=HeldOut(tasks=MultipleChoice(tasks=held_out_tasks(size=256), first=0.5)),
        rewards=(ReasoningScore(weight=0.0), AnswerConsistency()),
    )
