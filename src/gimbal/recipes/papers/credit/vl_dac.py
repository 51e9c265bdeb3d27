from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.advantages.estimators.turn_samples import TurnBalanced
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.controllers.delayed import Delayed
from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.objectives.surrogates.guarded_turns import GuardedTurns
from gimbal.objectives.values.turn_value_loss import TurnValueLoss
from gimbal.ops import SequenceMean
from gimbal.recipes.core.ppo import ppo
from gimbal.runtime.run import Run


def vl_dac() -> Run:
    """VL-DAC (arXiv:2508.04280): PPO on tokens with values and advantages per reasoning step; the critic trains first."""
    return replace(
        ppo(),
        filters=(StepTurns(separator=" "),),
        advantage=TurnGAE(gamma=0.9, lam=0.95),
        shaping=(Whitened(level="turn"), TurnBalanced(weighting="turn")),
        objective=GuardedTurns(),
        regularisers=(TurnValueLoss(clip=0.1), KLPenalty(coef=0.04)),
        aggregation=SequenceMean(),
        controllers={"optimization.learning_rate": Delayed(steps=5, after=1e-4)},
    )
