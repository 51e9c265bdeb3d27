from __future__ import annotations

from dataclasses import replace

from gimbal.environments.demonstrations import held_out_tasks
from gimbal.environments.multiple_choice import MultipleChoice
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.answer_consistency import AnswerConsistency
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import HeldOut, Run


def acre() -> Run:
    """ACRE (arXiv:2510.10104): a right choice earns in full only if its working leads to it again with the options in another order.

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        tasks=MultipleChoice(),
        held_out=HeldOut(tasks=MultipleChoice(tasks=held_out_tasks(size=256), first=0.5)),
        rewards=(ReasoningScore(weight=0.0), AnswerConsistency()),
    )
