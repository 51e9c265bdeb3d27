from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import ReturnToGo
from gimbal.environments.choices import Choices
from gimbal.learning.optimization import Optimization
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.ops import TokenMean
from gimbal.recipes.core.dpo import dpo
from gimbal.runtime.run import Run


def sft() -> Run:
    """SFT on 64 correctly reasoned chain sums, 25 epochs: a baseline for other recipes and the starting point of `rejuvenation`."""
    return replace(
        dpo(),
        tasks=Choices(size=64),
        rewards=(),
        num_generations=1,
        objective=Likelihood(),
        advantage=ReturnToGo(),
        aggregation=TokenMean(),
        optimization=Optimization(learning_rate=3e-4),
        steps=50,
    )
