from __future__ import annotations

from dataclasses import replace

from gimbal.environments.choices import Choices
from gimbal.objectives.surrogates.advantage_regression import AdvantageRegression
from gimbal.recipes.core.dpo import dpo
from gimbal.runtime.run import Run
from gimbal.workflows.demonstrated import Demonstrated


def direct_advantage() -> Run:
    """Direct Advantage Policy Optimization (arXiv:2412.18279), offline: fits candidate next reasoning steps to their values."""
    return replace(
        dpo(),
        workflow=Demonstrated(end=False),
        tasks=Choices(part="step", count=4),
        prompts_per_step=16,
        num_generations=4,
        objective=AdvantageRegression(),
    )
