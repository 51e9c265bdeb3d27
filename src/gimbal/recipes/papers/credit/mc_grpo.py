from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.median_centered import MedianCentered
from gimbal.objectives.masks.pivot_mask import PivotMask
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def mc_grpo() -> Run:
    """MC-GRPO (arXiv:2601.22582): centres small odd groups at their median rollout, which does not train; two epochs per batch."""
    run = grpo()
    return replace(
        run,
        advantage=MedianCentered(),
        masks=(PivotMask(),),
        num_generations=5,
        prompts_per_step=24,
        optimization=replace(run.optimization, epochs=2),
    )
