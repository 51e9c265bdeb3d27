from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import GAE
from gimbal.critics.members import Ensemble
from gimbal.critics.tokens import TrunkValue
from gimbal.objectives.masks.disagreement import DisagreementMask
from gimbal.objectives.regularisers.agreement_entropy_bonus import AgreementEntropyBonus
from gimbal.objectives.values.member_value_loss import EnsembleValueLoss
from gimbal.ops import SequenceMean
from gimbal.recipes.core.ppo import ppo
from gimbal.runtime.run import Run


def asyppo() -> Run:
    """ASYPPO (arXiv:2510.01656): PPO with two small critics, whose agreement decides which decisions train and which explore."""
    run = ppo()
    return replace(
        run,
        prompts_per_step=16,
        num_generations=8,
        advantage=GAE(gamma=1.0, lam=1.0),
        masks=(DisagreementMask(),),
        regularisers=(EnsembleValueLoss(), AgreementEntropyBonus()),
        aggregation=SequenceMean(),
        critic=Ensemble(critics=(TrunkValue(layers=1), TrunkValue(layers=1))),
        optimization=replace(run.optimization, epochs=2, minibatches=2),
    )
