from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.stratified import Stratified
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def stratified_grpo() -> Run:
    """Stratified GRPO (arXiv:2510.06214), in a terminal: normalises among episodes with as many answered turns, then blends with GRPO.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(terminal(), advantage=Stratified())
