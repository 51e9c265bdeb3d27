from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.solver import SolverScore
from gimbal.runtime.run import Run


def revisor() -> Run:
    """REVISOR's decoupled reward (arXiv:2511.13026): part of the reward is whether the reasoning by itself leads to the answer again.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    evidence = SolverScore(
        solver=None,
        template="{prompt}<think>{completion}</think>",
        part=("<think>", "</think>"),
        samples=1,
        name="evidence",
        weight=0.3,
    )
    return replace(grpo(), rewards=(ReasoningScore(weight=0.6), evidence))
