from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.cross_rollout import CrossRolloutBaseline
from gimbal.controllers.delayed import Delayed
from gimbal.critics.probe import Probe
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def poise() -> Run:
    """POISE (arXiv:2605.07579): the baseline of each rollout of a pair comes from a linear probe on the other's hidden states.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        prompts_per_step=64,
        num_generations=2,
        advantage=CrossRolloutBaseline(),
        critic=Probe(),
        # The probe is fitted before it is used.
        controllers={"optimization.learning_rate": Delayed(steps=1, after=1e-4)},
    )
