from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import GAE
from gimbal.critics.tokens import HiddenValue
from gimbal.objectives.values.member_value_loss import MultiHorizonValueLoss
from gimbal.recipes.core.ppo import ppo
from gimbal.runtime.run import Run


def target_decoupling() -> Run:
    """Target decoupling (arXiv:2604.13517): PPO whose critic learns four horizons, and whose actor uses only the longest."""
    return replace(
        ppo(),
        advantage=GAE(gamma=0.999, lam=0.95),
        regularisers=(MultiHorizonValueLoss(gammas=(0.5, 0.9, 0.99, 0.999)),),
        critic=HiddenValue(hidden=(64,), heads=4),
    )
