"""What parts say of the run they are in: for each rule a run that breaks it, and what the rule tells one to type silences it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import ast
import re
from dataclasses import dataclass
from typing import ClassVar

from small import Digits, small_run

import gimbal
from gimbal.advantages import GAE, DiscrepancyPenalty, GroupCentered, GroupNormalized, KLReward, ReturnToGo, Whitened
from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.advantages.estimators.chain_ranked import ChainRanked
from gimbal.advantages.estimators.cross_rollout import CrossRolloutBaseline
from gimbal.advantages.estimators.median_centered import MedianCentered
from gimbal.advantages.estimators.minimum_variance import MinimumVarianceCentered
from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.advantages.estimators.stratified import Stratified
from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.advantages.estimators.turn_samples import TurnBalanced
from gimbal.advantages.reward_shaping.cost_constraint import CostConstraint
from gimbal.advantages.reward_shaping.log_tamed import LogTamed
from gimbal.advantages.reward_shaping.relative_length import RelativeLength
from gimbal.advantages.reward_shaping.running_normalized import RunningNormalized
from gimbal.advantages.reward_shaping.spread_return import SpreadReturn
from gimbal.advantages.shapings.entropy_shaped import EntropyShaped
from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.advantages.shapings.rank_shaped import RankShaped
from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.composition import Advice, Refusal
from gimbal.controllers.delayed import Delayed
from gimbal.controllers.effective_sample_size import EffectiveSampleSize
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.critics.members import Ensemble
from gimbal.critics.probe import Probe
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.curricula.allocated import Allocated
from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.dataflow.curricula.solved_share import SolvedShare
from gimbal.dataflow.filters.control_prefix import ControlPrefix
from gimbal.dataflow.filters.keep_solved import KeepSolved
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.dataflow.filters.superseded import Superseded
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.replay.buffer import Buffer
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.staleness import DropStale, Pace, Reweight
from gimbal.engines.native import Native
from gimbal.engines.offline import Offline
from gimbal.engines.vllm import VLLM
from gimbal.environments.demonstrations import practice
from gimbal.learning.method import Optimization
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.proximal.interruption import Interruption
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.proximal.snapshots import Snapshots
from gimbal.objectives import EntropyBonus, KLPenalty, Reinforce, SequenceRatio, TruncatedWeight, ValueLoss
from gimbal.objectives.base import AbstractMask
from gimbal.objectives.masks.covariance_mask import CovarianceMask
from gimbal.objectives.masks.curvature_mask import CurvatureMask
from gimbal.objectives.masks.disagreement import DisagreementMask
from gimbal.objectives.masks.pivot_mask import PivotMask
from gimbal.objectives.regularisers.agreement_entropy_bonus import AgreementEntropyBonus
from gimbal.objectives.regularisers.kl_hinge import KLHinge
from gimbal.objectives.regularisers.observation_likelihood import ObservationLikelihood
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.objectives.surrogates.advantage_regression import AdvantageRegression
from gimbal.objectives.surrogates.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.surrogates.direct_preference import DirectPreference
from gimbal.objectives.surrogates.gaussian_trust import GaussianTrust
from gimbal.objectives.surrogates.guided_ratio import GuidedRatio
from gimbal.objectives.surrogates.one_token_rollout import OneTokenRollout
from gimbal.objectives.surrogates.parts_clipped import PartsClipped
from gimbal.objectives.surrogates.ratio_variance import RatioVariance
from gimbal.objectives.surrogates.sequence_weight import SequenceWeight
from gimbal.objectives.surrogates.total_ratio_weight import TotalRatioWeight
from gimbal.objectives.surrogates.turn_sweep import TurnSweep
from gimbal.objectives.values.huber_value_loss import HuberValueLoss
from gimbal.objectives.values.member_value_loss import MultiHorizonValueLoss
from gimbal.objectives.values.turn_value_loss import TurnValueLoss
from gimbal.ops import ConstantMean, SequenceMean, SequenceSum
from gimbal.ops.part_mean import PartMean
from gimbal.policies.control import StepSampling
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM, Sampling
from gimbal.rewards.expected import Expected
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.set_diversity import SetDiversity
from gimbal.runtime.base import Local
from gimbal.runtime.compose import check, verdicts
from gimbal.runtime.ray import Ray
from gimbal.runtime.run import HeldOut
from gimbal.workflows.branching import Branching
from gimbal.workflows.criteria_first import CriteriaFirst
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.guided import Guided
from gimbal.workflows.single import SingleTurn
from gimbal.workflows.tempered import Tempered

DECOUPLED = RewardDecoupled(whiten="off")

TEMPERED = {"engine": Native(entropy=True), "workflow": Tempered()}
AEPO = {**TEMPERED, "shaping": (TemperedImitation(),)}
VCPO = {
    "objective": SequenceWeight(cap=8.0),
    "advantage": MinimumVarianceCentered(cap=8.0),
    "aggregation": ConstantMean(),
}

PACKAGE = Path(gimbal.__file__).parent
CRITIC = {"critic": HiddenValue(), "advantage": GAE()}

OLD = {"correction": TruncatedWeight()}

PUSHED = {"policy": Gaussian(observations=2, actions=1), "sampling": StepSampling()}
STEERED = {"reward_shaping": (KLReward(),), "controllers": {"reward_shaping.0.coef": Lagrangian()}}
REFUSALS = [
    (
        {"shaping": (RankShaped(),), "controllers": {"shaping.0.rank": Lagrangian()}},
        "shaping.0.rank, which RankShaped remembers by itself",
        {"controllers": {"shaping.0.gain": Lagrangian()}},
    ),
    (
        {**PUSHED, "sampling": Sampling(stop=("=",))},
        "draws env_steps by sampling=StepSampling",
        {"sampling": StepSampling()},
    ),
    (
        {**PUSHED, **STEERED},
        "no figure: let Lagrangian",
        {"controllers": {"reward_shaping.0.coef": Lagrangian(signal="mismatch/k3")}},
    ),
    ({"store": Buffer()}, "learns from whole ones", {"store": Buffer(cut=False)}),
    ({"store": Buffer(cut=False)}, "by how it was drawn", {"correction": TruncatedWeight()}),
    (
        {**OLD, "store": Buffer(cut=False), "anchor": SamplingVersion()},
        "Buffer lets decisions be older",
        {"anchor": Recompute()},
    ),
    ({"workflow": CriteriaFirst()}, "use Stratified", {"advantage": Stratified(strata="score/digits")}),
    ({"shaping": (EntropyShaped(), Whitened())}, "put it first in shaping", {"shaping": (Whitened(), EntropyShaped())}),
    ({"advantage": DECOUPLED, "reward_shaping": (KLReward(),)}, "would be lost", {"reward_shaping": ()}),
    (
        {"rewards": (Digits(), SetDiversity(sets=3))},
        "multiple of its sets",
        {"rewards": (Digits(), SetDiversity(sets=2))},
    ),
    ({"masks": (PivotMask(),)}, "unless advantage=MedianCentered", {"advantage": MedianCentered()}),
    ({**AEPO, "correction": TruncatedWeight()}, "would undo it", {"correction": None}),
    (
        {"workflow": Branching(), "held_out": HeldOut(tasks=practice())},
        "would not be of the policy",
        {"held_out": HeldOut(tasks=practice(), workflow=SingleTurn())},
    ),
    (TEMPERED, "as if on-policy", {"shaping": (TemperedImitation(),)}),
    (
        {**AEPO, "sampling": Sampling(max_length=10, temperature=0.7)},
        "tells tempered groups by",
        {"shaping": (TemperedImitation(temperature=0.7),)},
    ),
    (
        {"anchor": SamplingVersion(window=1), "max_staleness": 2},
        "fewer versions than",
        {"anchor": SamplingVersion(window=2)},
    ),
    ({"policy": CausalLM(lora=LoRA()), "engine": VLLM()}, "only the adapter travels", {"engine": Native()}),
    ({"anchor": SamplingVersion(window=1), "staleness": Reweight()}, "older than any number", {"staleness": Pace()}),
    ({"anchor": Interruption(), "runtime": Ray()}, "while generation stands still", {"runtime": Local()}),
    ({"max_staleness": 1, "staleness": Reweight()}, "nothing here weighs", {"correction": TruncatedWeight()}),
    ({"step_size": EffectiveSampleSize()}, "which only SequenceWeight reports", {"objective": SequenceWeight()}),
    (
        {**CRITIC, "regularisers": (ValueLoss(), HuberValueLoss())},
        "keep one value loss",
        {"regularisers": (HuberValueLoss(),)},
    ),
    (
        {**CRITIC, "regularisers": (MultiHorizonValueLoss(),)},
        "set critic.heads to their number",
        {"critic": HiddenValue(heads=2), "regularisers": (MultiHorizonValueLoss(gammas=(0.5, 1.0)),)},
    ),
    ({"objective": GuidedRatio(), "correction": TruncatedWeight()}, "that a guide drew", {"correction": None}),
    (
        {"engine": Offline(), "workflow": Demonstrated(), "correction": TruncatedWeight()},
        "demonstrations were not sampled",
        {"correction": None},
    ),
    ({"filters": (StepRepair(),)}, "use workflow=Guided", {"workflow": Guided()}),
    (
        {"reward_shaping": (KLReward(), RunningNormalized())},
        "put it first in reward_shaping",
        {"reward_shaping": (RunningNormalized(), KLReward())},
    ),
    (
        {"controllers": {"optimization.learning_rate": Delayed(after=0.5)}},
        "give both the same",
        {"controllers": {"optimization.learning_rate": Delayed(after=1e-3)}},
    ),
]

ADVICE = [
    ({**OLD, "store": Buffer(cut=False)}, "Buffer gives the bound up", {"store": Once()}),
    ({}, "no clip ever acts", {"optimization": Optimization(minibatches=4)}),
    (
        {"anchor": SamplingVersion(window=1), "max_staleness": 1},
        "keys and values of older ones",
        {"engine": Native(cache="recompute")},
    ),
    ({"oversampling": 2.0}, "all of it is surplus", {"filters": (ZeroVariance(),)}),
    ({"staleness": Reweight(), "correction": TruncatedWeight()}, "gives the bound up", {"staleness": Pace()}),
    ({"max_staleness": 1, "staleness": DropStale()}, "selects against what takes long", {"staleness": Pace()}),
    (
        {"shaping": (DiscrepancyPenalty(),), "max_staleness": 1},
        "prices what was learned since",
        {"anchor": SamplingVersion(window=1)},
    ),
    ({"objective": SequenceRatio()}, "than SequenceMean weighs long sequences", {"aggregation": SequenceMean()}),
    (
        {"advantage": GroupNormalized(), "shaping": (Whitened(),)},
        "Whitened after GroupNormalized scales twice",
        {"advantage": GroupCentered()},
    ),
    (
        {"advantage": RewardDecoupled(), "shaping": (Whitened(),)},
        "Whitened after RewardDecoupled scales twice",
        {"advantage": DECOUPLED},
    ),
    ({"regularisers": (EntropyBonus(),), "masks": (CovarianceMask(),)}, "push the entropy", {"masks": ()}),
    (
        {"regularisers": (KLPenalty(),), "reward_shaping": (KLReward(),)},
        "pull towards the reference",
        {"reward_shaping": ()},
    ),
    (
        {"regularisers": (KLPenalty(estimator="k1"),)},
        "no expected gradient",
        {"regularisers": (KLPenalty(estimator="k2"),)},
    ),
    ({"shaping": (EntropyShaped(), NoveltySharpened())}, "two caps, not one", {"shaping": (EntropyShaped(),)}),
    ({"advantage": MedianCentered()}, "no rollout is the median", {"num_generations": 5}),
    ({"aggregation": PartMean(control=5.0)}, "nothing in this run marks any", {"filters": (ControlPrefix(),)}),
    ({"objective": PartsClipped()}, "it is ClippedRatio here", {"policy": Gaussian(observations=2, actions=1)}),
    (
        {"objective": RatioVariance(strength=0.0), "optimization": Optimization(epochs=2)},
        "RatioVariance of strength 0",
        {"objective": RatioVariance(strength=0.1)},
    ),
    (
        {"objective": ContrastiveLikelihood(), "aggregation": SequenceMean()},
        "without KLHinge",
        {"regularisers": (KLHinge(),)},
    ),
    (
        {"objective": ContrastiveLikelihood(), "regularisers": (KLHinge(),)},
        "weighs them again",
        {"aggregation": SequenceMean()},
    ),
    ({"rewards": (Digits(), Expected())}, "a group estimator cancels it", {"advantage": ReturnToGo()}),
    ({"shaping": (TemperedImitation(),)}, "so it does nothing", TEMPERED),
    ({"advantage": SignedOutcome(), "filters": (ZeroVariance(),)}, "and ZeroVariance drops them", {"filters": ()}),
    ({"advantage": SignedOutcome(), "shaping": (Whitened(),)}, "that SignedOutcome leaves out", {"shaping": ()}),
    (
        {"masks": (CurvatureMask(learning_rate=1e-4),)},
        "of another learning rate",
        {"masks": (CurvatureMask(learning_rate=1e-3),)},
    ),
    (
        {**VCPO, "optimization": Optimization(minibatches=2)},
        "for the first update on a batch only",
        {"optimization": Optimization()},
    ),
    (
        {**VCPO, "objective": SequenceWeight(cap=2.0)},
        "optimal for another gradient",
        {"objective": SequenceWeight(cap=8.0)},
    ),
    ({**VCPO, "shaping": (Whitened(),)}, "where the variance is least", {"shaping": ()}),
    ({**VCPO, "aggregation": SequenceMean()}, "divides it by lengths", {"aggregation": ConstantMean()}),
    ({"anchor": Snapshots()}, "more weights than any part reads", {"objective": GaussianTrust()}),
    (
        {"objective": GaussianTrust(), "optimization": Optimization(epochs=2)},
        "its pull fades far away",
        {"objective": GaussianTrust(clip_low=0.2, clip_high=0.2)},
    ),
    ({"reference_resets": (2,)}, "that no part reads", {"regularisers": (KLPenalty(),)}),
    ({"curriculum": Hinted()}, "take up batches all the same", {"filters": (Superseded(),)}),
    (
        {"reward_shaping": (RelativeLength(right="digits"),), "filters": (ZeroVariance(),)},
        "differ in nothing else",
        {"filters": ()},
    ),
    (
        {**CRITIC, "advantage": TurnGAE(), "regularisers": (ValueLoss(),)},
        "fits them there alone",
        {"regularisers": (TurnValueLoss(),)},
    ),
    (
        {**CRITIC, "critic": HiddenValue(heads=2), "regularisers": (MultiHorizonValueLoss(gammas=(0.5, 0.8)),)},
        "whose head it reads",
        {"advantage": GAE(gamma=0.8)},
    ),
    (
        {"masks": (DisagreementMask(),), **CRITIC, "regularisers": (ValueLoss(),)},
        "cannot disagree with itself",
        {"critic": Ensemble(critics=(HiddenValue(), HiddenValue(hidden=(8,))))},
    ),
    ({"critic": Probe(), "advantage": GAE()}, "whose features know the rollout", {"advantage": CrossRolloutBaseline()}),
    (
        {"critic": Probe(), "advantage": CrossRolloutBaseline(), "shaping": (Whitened(),)},
        "Whitened gives it one",
        {"shaping": ()},
    ),
    ({"curriculum": Allocated(prompts=9)}, "than a batch holds", {"curriculum": Allocated(prompts=2, rollouts=4)}),
    (
        {"workflow": Guided(guides=2), "filters": (StepRepair(guides=1),)},
        "Guided.guides differ",
        {"filters": (StepRepair(guides=2),)},
    ),
    (
        {"filters": (KeepSolved(),)},
        "which solved groups KeepSolved",
        {"curriculum": SolvedShare(necessary="digits", steps="digits")},
    ),
    ({"shaping": (TurnBalanced(),)}, "weighs turns again", {"aggregation": SequenceMean()}),
    (
        {"advantage": ChainRanked(), "reward_shaping": (KLReward(),)},
        "so reward_shaping does nothing",
        {"reward_shaping": ()},
    ),
    (
        {"advantage": BatchScaled(), "shaping": (Whitened(),)},
        "Whitened after BatchScaled scales twice",
        {"advantage": BatchScaled(spread="none")},
    ),
    (
        {"reward_shaping": (CostConstraint(cost="score/digits"),)},
        "a reward besides",
        {"rewards": (Digits(weight=0.0),)},
    ),
    ({"regularisers": (ObservationLikelihood(),)}, "nothing in this run yields any", {"workflow": Dialogue()}),
    (
        {"objective": OneTokenRollout(), "sampling": Sampling(max_length=10, temperature=0.7)},
        "on top of sampling",
        {"sampling": Sampling(max_length=10)},
    ),
    (
        {"shaping": (), "reward_shaping": (SpreadReturn(),)},
        "that sums a rollout's rewards",
        {"advantage": ReturnToGo()},
    ),
    (
        {"objective": DirectPreference(), "aggregation": SequenceMean()},
        "DirectPreference is of whole rollouts",
        {"aggregation": SequenceSum()},
    ),
    (
        {"objective": AdvantageRegression(), "aggregation": SequenceMean()},
        "AdvantageRegression is of whole rollouts",
        {"aggregation": SequenceSum()},
    ),
    (
        {"curriculum": SolvedShare(necessary="digits", steps="digits")},
        "which solved groups KeepSolved",
        {"filters": (KeepSolved(),)},
    ),
    ({**CRITIC, "regularisers": (TurnValueLoss(),)}, "fits them there alone", {"advantage": TurnGAE()}),
    (
        {"regularisers": (AgreementEntropyBonus(), ValueLoss()), **CRITIC},
        "cannot disagree with itself",
        {"critic": Ensemble(critics=(HiddenValue(), HiddenValue(hidden=(8,))))},
    ),
    (
        {"rewards": (Digits(weight=2.0),), "reward_shaping": (LogTamed(),)},
        "what it takes away is not what they gave",
        {"rewards": (Digits(),)},
    ),
]


def said(**changes: object) -> list[str]:
    """All that the parts of this run say, whether it stops the run or not."""
    return [verdict.reason for verdict in verdicts(small_run(**{"num_generations": 4, **changes}))]


@pytest.mark.parametrize(("changes", "reason", "cure"), REFUSALS)
def test_refused_until_what_it_says_is_typed(changes, reason, cure):
    with pytest.raises(ValueError, match=reason):
        check(small_run(**{"num_generations": 4, **changes}))
    assert [other for other in said(**{**changes, **cure}) if reason in other] == []


@pytest.mark.parametrize(("changes", "sentence", "cure"), ADVICE)
def test_advised_until_what_it_says_is_typed(changes, sentence, cure):
    assert [other for other in check(small_run(**{"num_generations": 4, **changes})) if sentence in other] != []
    assert [other for other in said(**{**changes, **cure}) if sentence in other] == []


def _sentences(file: Path) -> list[str]:
    """What the file's refusals and advice say, as regular expressions."""
    calls = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]
    said = [call.args[0] for call in calls if ast.unparse(call.func) in ("Refusal", "Advice")]
    return [
        "".join(re.escape(piece.value) if isinstance(piece, ast.Constant) else ".*" for piece in pieces)
        for text in said
        for pieces in [text.values if isinstance(text, ast.JoinedStr) else [text]]
    ]


def test_every_rule_of_a_part_has_its_case():
    """So that a new rule comes with a run that breaks it and one that keeps it."""
    files = [file for file in PACKAGE.rglob("*.py") if file.name not in ("compose.py", "faults.py")]
    rules = [rule for file in files for rule in _sentences(file)]
    heard = [reason for changes, _, _ in (*REFUSALS, *ADVICE) for reason in said(**changes)]
    assert len(rules) > 60
    assert [rule for rule in rules if not any(re.fullmatch(rule, reason) for reason in heard)] == []


@dataclass(frozen=True, kw_only=True)
class Picky(AbstractMask):
    """A part that no file of the package knows."""

    right: str = ""
    names_rewards: ClassVar[tuple[str, ...]] = ("right",)

    def __call__(self, batch):
        return batch.mask_NS

    def fits(self, whole):
        if whole.has(Whitened):
            yield Refusal("Picky wants advantages as they are: drop Whitened")
        if whole.run.num_generations < 8:
            yield Advice("Picky learns little from small groups: num_generations=8")


def test_a_users_own_part_refuses_and_advises():
    assert check(small_run(masks=(Picky(),), **SEVERAL)) == ["Picky learns little from small groups: num_generations=8"]
    assert check(small_run(masks=(Picky(),), **{**SEVERAL, "num_generations": 8})) == []
    with pytest.raises(ValueError, match="drop Whitened"):
        check(small_run(masks=(Picky(),), shaping=(Whitened(),), **SEVERAL))
    with pytest.raises(ValueError, match="Picky reads the reward 'speed'"):
        check(small_run(masks=(Picky(right="speed"),), **SEVERAL))


def test_parts_within_parts_are_asked():
    outer = {"engine": Native(entropy=True), "workflow": Guided(others=Tempered())}
    assert [reason for reason in said(**outer) if "as if on-policy" in reason] != []


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


NEVER = next(reason for reason in said() if "no clip ever acts" in reason)
