from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.advantages.estimators.turn_samples import TurnBalanced
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.controllers.delayed import Delayed
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.objectives.surrogates.guarded_turns import GuardedTurns
from gimbal.objectives.values.turn_value_loss import TurnValueLoss
from gimbal.recipes.core.ppo import ppo
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def vl_dac() -> Run:
    """VL-DAC (arXiv:2508.04280), in a terminal: PPO on tokens, with values and advantages per turn; the critic trains first."""
    base = ppo()
    return replace(
        terminal(),
        critic=base.critic,
        advantage=TurnGAE(gamma=0.9, lam=0.95),
        shaping=(Whitened(level="turn"), TurnBalanced(weighting="turn")),
        objective=GuardedTurns(),
        regularisers=(TurnValueLoss(clip=0.1), KLPenalty(coef=0.04)),
        optimization=base.optimization,
        controllers={"optimization.learning_rate": Delayed(steps=5, after=1e-4)},
    )
