from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GroupCentered
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.objectives.surrogates.turn_sweep import TurnSweep
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def seeupo() -> Run:
    """SeeUPO (arXiv:2602.06554): updates reasoning steps one at a time, from last to first, each with its own ratio."""
    return replace(grpo(), filters=(StepTurns(separator=" "),), advantage=GroupCentered(), objective=TurnSweep())
