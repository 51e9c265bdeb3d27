from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.median_centered import MedianCentered
from gimbal.objectives.masks.pivot_mask import PivotMask
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def mc_grpo() -> Run:
    """MC-GRPO (arXiv:2601.22582): small odd groups around their median, whose own rollout trains nothing; two passes over a batch."""
    run = grpo()
    return replace(
        run,
        advantage=MedianCentered(),
        masks=(PivotMask(),),
        num_generations=5,
        prompts_per_step=24,
        optimization=replace(run.optimization, epochs=2),
    )
