"""Each rule of rules.py: a run that breaks it, and that no rule is without one."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, small_run

from gimbal.advantages import GAE, DiscrepancyPenalty, GroupCentered, GroupNormalized, KLReward, Whitened
from gimbal.advantages.batch_scaled import BatchScaled
from gimbal.advantages.chain_ranked import ChainRanked
from gimbal.advantages.cost_constraint import CostConstraint
from gimbal.advantages.cross_rollout import CrossRolloutBaseline
from gimbal.advantages.entropy_shaped import EntropyShaped
from gimbal.advantages.log_tamed import LogTamed
from gimbal.advantages.median_centered import MedianCentered
from gimbal.advantages.minimum_variance import MinimumVarianceCentered
from gimbal.advantages.novelty_sharpened import NoveltySharpened
from gimbal.advantages.rank_shaped import RankShaped
from gimbal.advantages.relative_length import RelativeLength
from gimbal.advantages.reward_decoupled import RewardDecoupled
from gimbal.advantages.running_normalized import RunningNormalized
from gimbal.advantages.signed_outcome import SignedOutcome
from gimbal.advantages.spread_return import SpreadReturn
from gimbal.advantages.stratified import Stratified
from gimbal.advantages.tempered_imitation import TemperedImitation
from gimbal.advantages.turn_gae import TurnGAE
from gimbal.advantages.turn_samples import TurnBalanced
from gimbal.controllers.delayed import Delayed
from gimbal.controllers.effective_sample_size import EffectiveSampleSize
from gimbal.critics.probe import Probe
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.curricula.allocated import Allocated
from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.dataflow.filters.keep_solved import KeepSolved
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.staleness import DropStale, Reweight
from gimbal.engines.branched import Branched
from gimbal.engines.criteria_first import CriteriaFirst
from gimbal.engines.demonstrated import Demonstrated
from gimbal.engines.guided import Guided
from gimbal.engines.tempered import Tempered
from gimbal.engines.vllm import VLLM
from gimbal.environments.demonstrations import practice
from gimbal.learning.method import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.interruption import Interruption
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.proximal.snapshots import Snapshots
from gimbal.objectives import EntropyBonus, KLPenalty, Reinforce, SequenceRatio, TruncatedWeight, ValueLoss
from gimbal.objectives.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.covariance_mask import CovarianceMask
from gimbal.objectives.curvature_mask import CurvatureMask
from gimbal.objectives.direct_preference import DirectPreference
from gimbal.objectives.disagreement import DisagreementMask
from gimbal.objectives.gaussian_trust import GaussianTrust
from gimbal.objectives.guided_ratio import GuidedRatio
from gimbal.objectives.huber_value_loss import HuberValueLoss
from gimbal.objectives.kl_hinge import KLHinge
from gimbal.objectives.member_value_loss import MultiHorizonValueLoss
from gimbal.objectives.observation_likelihood import ObservationLikelihood
from gimbal.objectives.one_token_rollout import OneTokenRollout
from gimbal.objectives.parts_clipped import PartsClipped
from gimbal.objectives.pivot_mask import PivotMask
from gimbal.objectives.ratio_variance import RatioVariance
from gimbal.objectives.right_likelihood import RightLikelihood
from gimbal.objectives.sequence_weight import SequenceWeight
from gimbal.objectives.total_ratio_weight import TotalRatioWeight
from gimbal.objectives.turn_sweep import TurnSweep
from gimbal.ops import ConstantMean, SequenceMean
from gimbal.ops.part_mean import PartMean
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM
from gimbal.records import Sampling
from gimbal.rewards.expected import Expected
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.set_diversity import SetDiversity
from gimbal.runtime.compose import check
from gimbal.runtime.ray import Ray
from gimbal.runtime.rules import REFUSED, WARNED
from gimbal.runtime.run import HeldOut

DECOUPLED = RewardDecoupled(whiten="off")

AEPO = {"engine": Tempered(), "shaping": (TemperedImitation(),)}
VCPO = {
    "objective": SequenceWeight(cap=8.0),
    "advantage": MinimumVarianceCentered(cap=8.0),
    "aggregation": ConstantMean(),
}

CRITIC = {"critic": HiddenValue(), "advantage": GAE()}

REFUSALS = [
    ({"engine": CriteriaFirst()}, "use Stratified"),
    ({"shaping": (EntropyShaped(), Whitened())}, "put it first in shaping"),
    ({"advantage": DECOUPLED, "reward_shaping": (KLReward(),)}, "would be lost"),
    ({"rewards": (Digits(), SetDiversity(sets=3))}, "multiple of its sets"),
    ({"masks": (PivotMask(),)}, "unless advantage=MedianCentered"),
    ({**AEPO, "correction": TruncatedWeight()}, "would undo it"),
    ({"engine": Branched(), "held_out": HeldOut(tasks=practice())}, "would not be of the policy"),
    ({"engine": Tempered()}, "as if on-policy"),
    ({**AEPO, "sampling": Sampling(max_length=10, temperature=0.7)}, "tells tempered groups by"),
    ({"anchor": SamplingVersion(window=1), "max_staleness": 2}, "fewer versions than"),
    ({"policy": CausalLM(lora=LoRA()), "engine": VLLM()}, "only the adapter travels"),
    ({"anchor": SamplingVersion(window=1), "staleness": Reweight()}, "older than any number"),
    ({"anchor": Interruption(), "runtime": Ray()}, "while generation stands still"),
    ({"max_staleness": 1, "staleness": Reweight()}, "nothing here weighs"),
    ({"step_size": EffectiveSampleSize()}, "which only SequenceWeight reports"),
    ({**CRITIC, "regularisers": (ValueLoss(), HuberValueLoss())}, "keep one value loss"),
    ({**CRITIC, "regularisers": (MultiHorizonValueLoss(),)}, "set critic.heads to their number"),
    ({"objective": GuidedRatio(), "correction": TruncatedWeight()}, "that a guide drew"),
    ({"engine": Demonstrated(), "correction": TruncatedWeight()}, "demonstrations were not sampled"),
    ({"filters": (StepRepair(),)}, "use engine=Guided"),
    ({"reward_shaping": (KLReward(), RunningNormalized())}, "put it first in reward_shaping"),
    ({"controllers": {"optimization.learning_rate": Delayed(after=0.5)}}, "give both the same"),
]

WARNINGS = [
    ({}, "no clip ever acts"),
    ({"anchor": SamplingVersion(window=1), "max_staleness": 1}, "keys and values of older ones"),
    ({"oversampling": 2.0}, "all of it is surplus"),
    ({"staleness": Reweight(), "correction": TruncatedWeight()}, "gives the bound up"),
    ({"max_staleness": 1, "staleness": DropStale()}, "selects against what takes long"),
    ({"shaping": (DiscrepancyPenalty(),), "max_staleness": 1}, "prices what was learned since"),
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
    ({"objective": RatioVariance(strength=0.0), "optimization": Optimization(epochs=2)}, "RatioVariance of strength 0"),
    ({"objective": ContrastiveLikelihood(), "aggregation": SequenceMean()}, "without KLHinge"),
    ({"objective": ContrastiveLikelihood(), "regularisers": (KLHinge(),)}, "weighs them again"),
    ({"rewards": (Digits(), Expected())}, "a group estimator cancels it"),
    ({"shaping": (TemperedImitation(),)}, "so it does nothing"),
    ({"advantage": SignedOutcome(), "filters": (ZeroVariance(),)}, "and ZeroVariance drops them"),
    ({"advantage": SignedOutcome(), "shaping": (Whitened(),)}, "that SignedOutcome leaves out"),
    ({"masks": (CurvatureMask(learning_rate=1e-4),)}, "of another learning rate"),
    ({"shaping": (RankShaped(),)}, "no baselines to compare with"),
    ({**VCPO, "optimization": Optimization(minibatches=2)}, "for the first update on a batch only"),
    ({**VCPO, "objective": SequenceWeight(cap=2.0)}, "optimal for another gradient"),
    ({**VCPO, "shaping": (Whitened(),)}, "where the variance is least"),
    ({**VCPO, "aggregation": SequenceMean()}, "divides it by lengths"),
    ({"anchor": Snapshots()}, "more weights than any part reads"),
    ({"objective": GaussianTrust(), "optimization": Optimization(epochs=2)}, "its pull fades far away"),
    ({"reference_resets": (2,)}, "that no part reads"),
    ({"curriculum": Hinted()}, "take up batches all the same"),
    ({"reward_shaping": (RelativeLength(right="digits"),), "filters": (ZeroVariance(),)}, "differ in nothing else"),
    ({**CRITIC, "advantage": TurnGAE(), "regularisers": (ValueLoss(),)}, "fits them there alone"),
    (
        {**CRITIC, "critic": HiddenValue(heads=2), "regularisers": (MultiHorizonValueLoss(gammas=(0.5, 0.8)),)},
        "whose head it reads",
    ),
    ({"masks": (DisagreementMask(),), **CRITIC, "regularisers": (ValueLoss(),)}, "cannot disagree with itself"),
    ({"critic": Probe(), "advantage": GAE()}, "whose features know the rollout"),
    ({"critic": Probe(), "advantage": CrossRolloutBaseline(), "shaping": (Whitened(),)}, "Whitened gives it one"),
    ({"curriculum": Allocated(prompts=9)}, "than a batch holds"),
    ({"engine": Guided(guides=2), "filters": (StepRepair(guides=1),)}, "Guided.guides differ"),
    ({"filters": (KeepSolved(),)}, "which solved groups KeepSolved"),
    ({"shaping": (TurnBalanced(),)}, "weighs turns again"),
    ({"advantage": ChainRanked(), "reward_shaping": (KLReward(),)}, "so reward_shaping does nothing"),
    ({"advantage": BatchScaled(), "shaping": (Whitened(),)}, "Whitened after BatchScaled scales twice"),
    ({"reward_shaping": (RunningNormalized(),)}, "normalises by the batch alone"),
    ({"reward_shaping": (CostConstraint(cost="score/digits"),)}, "a reward besides"),
    ({"regularisers": (ObservationLikelihood(),)}, "this engine yields none"),
    ({"objective": OneTokenRollout(), "sampling": Sampling(max_length=10, temperature=0.7)}, "on top of sampling"),
    ({"shaping": (), "reward_shaping": (SpreadReturn(),)}, "that sums a rollout's rewards"),
    ({"objective": DirectPreference(), "aggregation": SequenceMean()}, "are of whole rollouts"),
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
    assert [r for _, r in REFUSED if sum(said in r for _, said in REFUSALS) != 1] == []
    assert [r for _, r in WARNED if sum(said in r for _, said in WARNINGS) != 1] == []


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
    assert check(small_run(rewards=rewards, **SEVERAL, advantage=Stratified(strata="score/speed"))) == []


SEVERAL = {"num_generations": 4, "optimization": Optimization(minibatches=2)}


def test_a_sound_run_is_not_warned_of():
    assert check(small_run(**SEVERAL, advantage=GroupCentered(), shaping=(Whitened(),))) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"optimization": Optimization(minibatches=2)},
        {"optimization": Optimization(epochs=2)},
        {"objective": Reinforce()},
        {"objective": TurnSweep()},
        {"objective": TotalRatioWeight()},
        {"anchor": Behavior()},
        {"anchor": SamplingVersion(window=1), "max_staleness": 1},
    ],
)
def test_a_clip_that_can_act_is_not_warned_of(changes):
    run = small_run(num_generations=4)
    assert NEVER in check(run)
    assert NEVER not in check(replace(run, **changes))


def test_the_version_that_sampled_is_the_present_one_where_nothing_is_stale():
    assert NEVER in check(small_run(num_generations=4, anchor=SamplingVersion(window=1), max_staleness=0))


NEVER = next(reason for _, reason in WARNED if "no clip ever acts" in reason)
