"""Each rule of interactions.py: a run that breaks it, and that no rule is without one."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, small_run

from gimbal.advantages import GroupCentered, GroupNormalized, KLReward, Whitened
from gimbal.advantages.entropy_shaped import EntropyShaped
from gimbal.advantages.log_tamed import LogTamed
from gimbal.advantages.median_centered import MedianCentered
from gimbal.advantages.novelty_sharpened import NoveltySharpened
from gimbal.advantages.reward_decoupled import RewardDecoupled
from gimbal.advantages.stratified import Stratified
from gimbal.learning.method import Optimization
from gimbal.objectives import EntropyBonus, KLPenalty, SequenceRatio
from gimbal.objectives.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.covariance_mask import CovarianceMask
from gimbal.objectives.kl_hinge import KLHinge
from gimbal.objectives.parts_clipped import PartsClipped
from gimbal.objectives.pivot_mask import PivotMask
from gimbal.objectives.ratio_variance import RatioVariance
from gimbal.objectives.right_likelihood import RightLikelihood
from gimbal.ops import SequenceMean
from gimbal.ops.part_mean import PartMean
from gimbal.rewards.expected import Expected
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.set_diversity import SetDiversity
from gimbal.runtime.compose import check
from gimbal.runtime.interactions import REFUSED, WARNED

DECOUPLED = RewardDecoupled(whiten="off")

REFUSALS = [
    ({"shaping": (EntropyShaped(), Whitened())}, "put it first in shaping"),
    ({"advantage": DECOUPLED, "reward_shaping": (KLReward(),)}, "would be lost"),
    ({"rewards": (Digits(), SetDiversity(sets=3))}, "multiple of its sets"),
    ({"masks": (PivotMask(),)}, "unless advantage=MedianCentered"),
]

WARNINGS = [
    ({"objective": SequenceRatio()}, "than SequenceMean weighs long sequences"),
    ({"advantage": GroupNormalized(), "shaping": (Whitened(),)}, "Whitened after GroupNormalized scales twice"),
    ({"advantage": RewardDecoupled(), "shaping": (Whitened(),)}, "Whitened after RewardDecoupled scales twice"),
    ({"regularisers": (EntropyBonus(),), "masks": (CovarianceMask(),)}, "push the entropy"),
    ({"regularisers": (KLPenalty(),), "reward_shaping": (KLReward(),)}, "pull towards the reference"),
    ({"regularisers": (KLPenalty(estimator="k1"),)}, "no expected gradient"),
    ({"shaping": (EntropyShaped(), NoveltySharpened())}, "two caps, not one"),
    ({"advantage": MedianCentered()}, "no rollout is the median"),
    ({"aggregation": PartMean(control=5.0)}, "nothing in this run marks any"),
    ({"objective": PartsClipped()}, "it is ClippedRatio here"),
    ({"objective": RatioVariance(strength=0.0), "optimization": Optimization(epochs=2)}, "nothing bounds the ratio"),
    ({"objective": ContrastiveLikelihood(), "aggregation": SequenceMean()}, "without KLHinge"),
    ({"objective": ContrastiveLikelihood(), "regularisers": (KLHinge(),)}, "weighs them again"),
    ({"rewards": (Digits(), Expected())}, "a group estimator cancels it"),
    ({"rewards": (Digits(weight=2.0),), "reward_shaping": (LogTamed(),)}, "what it takes away is not what they gave"),
]


@pytest.mark.parametrize(("changes", "reason"), REFUSALS)
def test_refused(changes, reason):
    with pytest.raises(ValueError, match=reason):
        check(small_run(**{"num_generations": 4, **changes}))


@pytest.mark.parametrize(("changes", "sentence"), WARNINGS)
def test_warned(changes, sentence):
    warnings = check(small_run(**{"num_generations": 4, **changes}))
    assert any(sentence in warning for warning in warnings), warnings


def test_every_rule_has_its_case():
    assert len(REFUSALS) == len(REFUSED) and len(WARNINGS) == len(WARNED)
    assert all(sum(said in reason for _, said in REFUSALS) == 1 for _, reason in REFUSED)
    assert all(sum(said in reason for _, said in WARNINGS) == 1 for _, reason in WARNED)


@pytest.mark.parametrize(
    "changes",
    [
        {"advantage": RewardDecoupled(rewards=("digits", "speed"), whiten="off")},
        {"advantage": Stratified(strata="score/speed")},
        {"regularisers": (RightLikelihood(right="speed"),)},
    ],
)
def test_a_reward_that_is_not_there_is_named(changes):
    with pytest.raises(ValueError, match="reads the reward 'speed'"):
        check(small_run(rewards=(Digits(),), num_generations=4, **changes))


def test_a_reward_that_is_there_is_found():
    rewards = (Digits(), Pattern(name="speed", weight=0.0))
    assert check(small_run(rewards=rewards, num_generations=4, advantage=Stratified(strata="score/speed"))) == []


def test_a_sound_run_is_not_warned_of():
    assert check(small_run(num_generations=4, advantage=GroupCentered(), shaping=(Whitened(),))) == []
