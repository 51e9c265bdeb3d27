from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.edge_averaged import EdgeAveraged
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.recipes.grpo import grpo
from gimbal.runtime.run import Run


def salt() -> Run:
    """SALT (arXiv:2510.20022): a step of working that right and wrong answers to one task share gets the mean of their advantages.

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), filters=(StepTurns(separator=" "),), shaping=(EdgeAveraged(),))
