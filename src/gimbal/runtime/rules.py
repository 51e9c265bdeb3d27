"""The rules of interactions.py: which parts may not stand together, which should not, and why.

A rule looks at the parts of a run; what a part can see of itself it checks when it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gimbal.advantages.batch_scaled import BatchScaled
from gimbal.advantages.chain_ranked import ChainRanked
from gimbal.advantages.cost_constraint import CostConstraint
from gimbal.advantages.cross_rollout import CrossRolloutBaseline
from gimbal.advantages.discrepancy_penalty import DiscrepancyPenalty
from gimbal.advantages.entropy_shaped import EntropyShaped
from gimbal.advantages.gae import GAE, ReturnToGo
from gimbal.advantages.group_normalized import GroupNormalized
from gimbal.advantages.horizon_routed import HorizonRouted
from gimbal.advantages.kl_reward import KLReward
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
from gimbal.advantages.tempered_imitation import TemperedImitation
from gimbal.advantages.turn_gae import TurnGAE
from gimbal.advantages.turn_samples import TurnBalanced
from gimbal.advantages.whitened import Whitened
from gimbal.controllers.delayed import Delayed
from gimbal.controllers.effective_sample_size import EffectiveSampleSize
from gimbal.critics.members import Ensemble
from gimbal.critics.probe import Probe
from gimbal.critics.tokens import HiddenValue, TrunkValue
from gimbal.dataflow.curricula.allocated import Allocated
from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.dataflow.curricula.solved_share import SolvedShare
from gimbal.dataflow.filters.control_prefix import ControlPrefix
from gimbal.dataflow.filters.keep_solved import KeepSolved
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.dataflow.filters.superseded import Superseded
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.staleness import DropStale, Reweight
from gimbal.engines.branched import Branched
from gimbal.engines.conversation import Conversation
from gimbal.engines.criteria_first import CriteriaFirst
from gimbal.engines.demonstrated import Demonstrated
from gimbal.engines.guided import Guided
from gimbal.engines.native import Native
from gimbal.engines.tempered import Tempered
from gimbal.engines.vllm import VLLM
from gimbal.learning.proximal.interruption import Interruption
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.proximal.snapshots import Snapshots
from gimbal.learning.updates.policy_gradient import column_needs
from gimbal.objectives.advantage_regression import AdvantageRegression
from gimbal.objectives.base import DISCREPANCY, UPDATE, AbstractObjective
from gimbal.objectives.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.convex_kl import ConvexKL
from gimbal.objectives.covariance_kl import CovarianceKL
from gimbal.objectives.covariance_mask import CovarianceMask
from gimbal.objectives.curvature_mask import CurvatureMask
from gimbal.objectives.direct_preference import DirectPreference
from gimbal.objectives.disagreement import AgreementEntropyBonus, DisagreementMask
from gimbal.objectives.entropy_bonus import EntropyBonus
from gimbal.objectives.entropy_gated_kl import EntropyGatedKL
from gimbal.objectives.entropy_smoothing import EntropySmoothing
from gimbal.objectives.gaussian_trust import GaussianTrust
from gimbal.objectives.guided_ratio import GuidedRatio
from gimbal.objectives.huber_value_loss import HuberValueLoss
from gimbal.objectives.kl_hinge import KLHinge
from gimbal.objectives.kl_penalty import KLPenalty
from gimbal.objectives.member_value_loss import EnsembleValueLoss, MultiHorizonValueLoss
from gimbal.objectives.observation_likelihood import ObservationLikelihood
from gimbal.objectives.one_token_rollout import OneTokenRollout
from gimbal.objectives.parts_clipped import PartsClipped
from gimbal.objectives.pivot_mask import PivotMask
from gimbal.objectives.ratio_variance import RatioVariance
from gimbal.objectives.sequence_ratio import SequenceRatio
from gimbal.objectives.sequence_weight import SequenceWeight
from gimbal.objectives.turn_value_loss import TurnValueLoss
from gimbal.objectives.value_loss import ValueLoss
from gimbal.ops import SequenceMean, SequenceSum, TokenMean
from gimbal.ops.part_mean import PartMean
from gimbal.policies.lora import LoRA
from gimbal.rewards.expected import Expected
from gimbal.rewards.set_diversity import SetDiversity
from gimbal.runtime.base import Local
from gimbal.runtime.cast import Cast
from gimbal.runtime.run import Run

ENTROPY = (
    EntropyBonus,
    AgreementEntropyBonus,
    EntropySmoothing,
    EntropyShaped,
    RankShaped,
    TemperedImitation,
    CovarianceMask,
    CovarianceKL,
)
REFERENCE = (KLPenalty, KLReward, ConvexKL, EntropyGatedKL)
VALUE_LOSSES = (ValueLoss, HuberValueLoss, TurnValueLoss, EnsembleValueLoss, MultiHorizonValueLoss)
NO_GROUP = (GAE, TurnGAE, ReturnToGo)


Rule = tuple[Callable[[Cast], object], str]

REFUSED: tuple[Rule, ...] = (
    (
        lambda cast: any(isinstance(shape, Whitened) for shape in cast.run.shaping[1:]),
        "Whitened after another shaping would undo the signs that one gave: put it first in shaping",
    ),
    (
        lambda cast: cast.has(RewardDecoupled) and cast.run.reward_shaping,
        "RewardDecoupled reads rewards by name, so what reward_shaping adds to their sum would be lost: drop one of the two",
    ),
    (
        lambda cast: any(cast.run.num_generations % part.sets or part.sets < 2 for part in cast.all(SetDiversity)),
        "SetDiversity compares sets of equal size: let num_generations be a multiple of its sets, and sets at least 2",
    ),
    (
        lambda cast: cast.has(PivotMask) and not cast.has(MedianCentered),
        "PivotMask drops the rollout at the median, which has an advantage of its own unless advantage=MedianCentered()",
    ),
    (
        lambda cast: cast.has(Tempered) and (cast.run.correction is not None or DISCREPANCY in cast.run.anchor.absorbs),
        "Tempered draws some groups at another temperature on purpose, and a correction for the sampler would undo it: "
        "correction=None and anchor=Recompute()",
    ),
    (
        lambda cast: cast.has(Branched) and cast.run.held_out is not None and cast.run.held_out.engine is None,
        "Branched splits rollouts where the policy was uncertain, so an exam drawn by it would not be of the policy: "
        "held_out.engine='Native()', or held_out=None",
    ),
    (
        lambda cast: cast.has(Tempered) and not cast.has(TemperedImitation),
        "Tempered draws some groups at another temperature, which must not train as if on-policy: add TemperedImitation() to shaping",
    ),
    (
        lambda cast: any(p.temperature != cast.run.sampling.temperature for p in cast.all(TemperedImitation)),
        "TemperedImitation tells tempered groups by their temperature: set its temperature to sampling.temperature",
    ),
    (
        lambda cast: any(p.window < cast.run.max_staleness for p in cast.all(SamplingVersion)),
        "SamplingVersion keeps fewer versions than decisions may be old: set anchor.window to max_staleness",
    ),
    (
        lambda cast: cast.has(LoRA) and cast.has(VLLM),
        "VLLM is given whole models, and with policy.lora only the adapter travels: engine=Native()",
    ),
    (
        lambda cast: cast.has(Reweight) and cast.has(SamplingVersion),
        "SamplingVersion keeps a number of versions, and Reweight lets decisions be older than any number: staleness=Pace()",
    ),
    (
        lambda cast: (
            cast.has(Reweight)
            and cast.run.correction is None
            and DISCREPANCY not in cast.run.anchor.absorbs
            and "behavior_NS" not in column_needs(cast.run)
        ),
        "Reweight trains on what is older than max_staleness by its importance weights, and nothing here weighs: set "
        "correction=TruncatedWeight() or anchor=Behavior()",
    ),
    (
        lambda cast: (
            any(p.signal == "ess/sequence" for p in cast.all(EffectiveSampleSize)) and not cast.has(SequenceWeight)
        ),
        "EffectiveSampleSize goes by ess/sequence, which only SequenceWeight reports: use it as objective, or another signal",
    ),
    (
        lambda cast: len(cast.all(*VALUE_LOSSES)) > 1,
        "two parts fit the critic: keep one value loss",
    ),
    (
        lambda cast: any(
            len(p.gammas) != critic.heads
            for p in cast.all(MultiHorizonValueLoss, HorizonRouted)
            for critic in cast.all(HiddenValue, TrunkValue)
        ),
        "each of the gammas is the horizon of a head: set critic.heads to their number",
    ),
    (
        lambda cast: cast.has(GuidedRatio) and cast.run.correction is not None,
        "GuidedRatio has its own rule for decisions that a guide drew, and a correction weighs them again: correction=None",
    ),
    (
        lambda cast: cast.has(Demonstrated) and cast.run.correction is not None,
        "demonstrations were not sampled, so no ratio to a sampler means anything: correction=None",
    ),
    (
        lambda cast: cast.has(StepRepair) and not cast.has(Guided),
        "StepRepair takes the first rollouts of a group for a guide's: use engine=Guided()",
    ),
    (
        lambda cast: any(isinstance(shaping, RunningNormalized) for shaping in cast.run.reward_shaping[1:]),
        "RunningNormalized after another reward shaping takes penalties into its scale: put it first in reward_shaping",
    ),
    (
        lambda cast: any(
            isinstance(rule, Delayed)
            and path == "optimization.learning_rate"
            and rule.after != cast.run.optimization.learning_rate
            for path, rule in cast.run.controllers.items()
        ),
        "Delayed would replace optimization.learning_rate by a number of its own: give both the same",
    ),
    (
        lambda cast: (
            cast.has(Interruption) and not (isinstance(cast.run.runtime, Local) and isinstance(cast.run.engine, Native))
        ),
        "Interruption evaluates what is under way while generation stands still, as it does with runtime=Local() and engine=Native(): "
        "use these, or anchor=SamplingVersion(window=...)",
    ),
    (
        lambda cast: cast.has(CriteriaFirst) and cast.has(GroupNormalized),
        "GroupNormalized would compare criteria with judgements, which CriteriaFirst puts into one group: use Stratified",
    ),
)

WARNED: tuple[Rule, ...] = (
    (
        lambda cast: _never_clips(cast),
        "one update a batch, and the anchor is the policy as that update begins: the ratio is always 1 and no clip ever acts, "
        "which is the plain policy gradient; optimization.minibatches=4 takes four updates, of which three can be clipped",
    ),
    (
        lambda cast: cast.has(Reweight),
        "Reweight gives the bound up: decisions older than max_staleness are trained on, however old (see staleness/max)",
    ),
    (
        lambda cast: cast.has(DropStale) and cast.run.max_staleness > 0,
        "DropStale selects against what takes long (see selection/sampled and selection/trained); Pace keeps the bound without",
    ),
    (
        lambda cast: cast.run.max_staleness > 0 and cast.has(DiscrepancyPenalty) and not cast.run.anchor.at_sampling,
        "DiscrepancyPenalty on stale data prices what was learned since besides the gap between the engines: "
        "anchor=SamplingVersion(window=...), or max_staleness=0",
    ),
    (
        lambda cast: (
            cast.run.anchor.at_sampling
            and cast.run.max_staleness > 0
            and any(engine.cache == "keep" for engine in cast.all(Native, VLLM))
        ),
        "the anchor evaluates each decision by its own version, and rollouts that new weights overtake go on from keys and values of "
        'older ones, which then counts as discrepancy (up to 1.3 nats on gimbal-tiny): engine.cache="recompute"',
    ),
    (
        lambda cast: cast.run.oversampling > 1 and not cast.run.filters,
        "oversampling asks for groups that filters will drop, and there are no filters: all of it is surplus",
    ),
    (
        lambda cast: cast.has(SequenceRatio) and not isinstance(cast.run.aggregation, SequenceMean),
        "SequenceRatio with another aggregation than SequenceMean weighs long sequences more than the method means",
    ),
    (
        lambda cast: cast.has(GroupNormalized) and cast.has(Whitened),
        "Whitened after GroupNormalized scales twice: GroupCentered before it is REINFORCE++-baseline",
    ),
    (
        lambda cast: cast.has(Whitened) and any(part.whiten != "off" for part in cast.all(RewardDecoupled)),
        "Whitened after RewardDecoupled scales twice: set advantage.whiten=off, or drop Whitened",
    ),
    (lambda cast: len(cast.all(*ENTROPY)) > 1, "two parts push the entropy"),
    (lambda cast: len(cast.all(*REFERENCE)) > 1, "two parts pull towards the reference"),
    (
        lambda cast: any(part.estimator == "k1" for part in cast.all(KLPenalty)),
        "KLPenalty with k1 has no expected gradient, only noise: k2 pulls towards the reference, KLReward does so in the reward",
    ),
    (
        lambda cast: cast.has(EntropyShaped) and cast.has(NoveltySharpened),
        "EntropyShaped and NoveltySharpened both raise unlikely decisions, and what they add has two caps, not one",
    ),
    (
        lambda cast: cast.has(MedianCentered) and cast.run.num_generations % 2 == 0,
        "MedianCentered with an even num_generations: no rollout is the median, so none has advantage 0",
    ),
    (
        lambda cast: any(part.control != 1 for part in cast.all(PartMean)) and not cast.has(ControlPrefix),
        "PartMean weighs control decisions, and nothing in this run marks any: filters=(ControlPrefix(),) does",
    ),
    (
        lambda cast: cast.has(PartsClipped) and cast.run.policy.unit == "tokens",
        "PartsClipped has bounds of its own for latent decisions, and a CausalLM draws none: it is ClippedRatio here",
    ),
    (
        lambda cast: (
            cast.updates > 1 and not cast.run.controllers and any(not p.strength for p in cast.all(RatioVariance))
        ),
        "RatioVariance of strength 0 with several updates a batch: nothing bounds the ratio",
    ),
    (
        lambda cast: cast.has(ContrastiveLikelihood) and not cast.has(KLHinge),
        "ContrastiveLikelihood without KLHinge: nothing bounds the update",
    ),
    (
        lambda cast: cast.has(ContrastiveLikelihood) and not isinstance(cast.run.aggregation, SequenceMean),
        "ContrastiveLikelihood weighs rollouts itself, as SequenceMean leaves them; another aggregation weighs them again",
    ),
    (
        lambda cast: any(part.weight for part in cast.all(Expected)) and not cast.has(*NO_GROUP),
        "Expected is the same for a whole group, so a group estimator cancels it: use ReturnToGo, or weight 0",
    ),
    (
        lambda cast: any(_other_weights(part, cast.run) for part in cast.all(LogTamed)),
        "LogTamed has other weights than the rewards it tames, so what it takes away is not what they gave",
    ),
    (
        lambda cast: cast.has(TemperedImitation) and not cast.has(Tempered),
        "TemperedImitation without the engine Tempered: no group is at another temperature, so it does nothing",
    ),
    (
        lambda cast: cast.has(SignedOutcome) and cast.has(ZeroVariance),
        "SignedOutcome learns most from groups that all fail, and ZeroVariance drops them",
    ),
    (
        lambda cast: cast.has(SignedOutcome) and cast.has(Whitened),
        "Whitened brings back the baseline that SignedOutcome leaves out",
    ),
    (
        lambda cast: any(not _follows(cast.run, p.learning_rate) for p in cast.all(CurvatureMask)),
        "CurvatureMask predicts the shift of another learning rate than optimization.learning_rate",
    ),
    (
        lambda cast: any(p.rank == 0 for p in cast.all(RankShaped)) and not cast.run.controllers,
        "RankShaped has no baselines to compare with: bind a MovingAverage to its rank, velocity and acceleration",
    ),
    (
        lambda cast: cast.updates > 1 and cast.has(MinimumVarianceCentered),
        "MinimumVarianceCentered is optimal for the first update on a batch only, and there are several",
    ),
    (
        lambda cast: {p.cap for p in cast.all(MinimumVarianceCentered)} - {p.cap for p in cast.all(SequenceWeight)},
        "MinimumVarianceCentered.cap is not the cap of SequenceWeight, so it is optimal for another gradient",
    ),
    (
        lambda cast: cast.has(MinimumVarianceCentered) and cast.has(Whitened),
        "Whitened after MinimumVarianceCentered moves the baseline away from where the variance is least",
    ),
    (
        lambda cast: cast.has(SequenceWeight) and isinstance(cast.run.aggregation, TokenMean | SequenceMean),
        "SequenceWeight is the gradient of whole sequences, and this aggregation divides it by lengths: use ConstantMean()",
    ),
    (
        lambda cast: any(p.count > 1 for p in cast.all(Snapshots)) and not cast.has(GaussianTrust),
        "Snapshots keeps more weights than any part reads: GaussianTrust does, or set anchor.count=1",
    ),
    (
        lambda cast: cast.updates > 1 and any(math.inf in (p.clip_low, p.clip_high) for p in cast.all(GaussianTrust)),
        "GaussianTrust without a clip and several updates a batch: its pull fades far away, so nothing bounds the ratio",
    ),
    (
        lambda cast: cast.run.reference_resets and "reference_NS" not in column_needs(cast.run),
        "reference_resets renew a reference that no part reads",
    ),
    (
        lambda cast: cast.has(Hinted) and not cast.has(Superseded),
        "Hinted asks failed tasks again, and the failed groups take up batches all the same: put Superseded() first in filters",
    ),
    (
        lambda cast: cast.has(RelativeLength) and cast.has(ZeroVariance),
        "RelativeLength tells answers apart by length, and ZeroVariance drops groups that differ in nothing else before it can",
    ),
    (
        lambda cast: cast.has(TurnGAE) != cast.has(TurnValueLoss),
        "TurnGAE reads values at the first decisions of turns and TurnValueLoss fits them there alone: use both or neither",
    ),
    (
        lambda cast: any(p.gammas[-1] != gae.gamma for p in cast.all(MultiHorizonValueLoss) for gae in cast.all(GAE)),
        "GAE.gamma is not the last of the value loss's gammas, whose head it reads",
    ),
    (
        lambda cast: cast.has(DisagreementMask, AgreementEntropyBonus) and not cast.has(Ensemble),
        "one critic cannot disagree with itself: critic=Ensemble(critics=(..., ...))",
    ),
    (
        lambda cast: cast.has(Probe) and cast.has(GAE),
        "GAE reads Probe at every decision, whose features know the rollout they judge: use CrossRolloutBaseline",
    ),
    (
        lambda cast: cast.has(CrossRolloutBaseline) and cast.has(Whitened),
        "CrossRolloutBaseline has no scale in the paper, and Whitened gives it one",
    ),
    (
        lambda cast: any(
            (p.prompts, p.rollouts) != (cast.run.prompts_per_step, cast.run.num_generations)
            for p in cast.all(Allocated)
        ),
        "Allocated shares out another number of rollouts than a batch holds: let prompts and rollouts be those of the run",
    ),
    (
        lambda cast: any(p.guides != engine.guides for p in cast.all(StepRepair) for engine in cast.all(Guided)),
        "StepRepair.guides and Guided.guides differ",
    ),
    (
        lambda cast: cast.has(KeepSolved) != cast.has(SolvedShare),
        "SolvedShare says which solved groups KeepSolved lets through: use both or neither",
    ),
    (
        lambda cast: cast.has(TurnBalanced) and not isinstance(cast.run.aggregation, SequenceMean),
        "TurnBalanced counts on SequenceMean, and another aggregation weighs turns again",
    ),
    (
        lambda cast: cast.has(ChainRanked) and cast.run.reward_shaping,
        "ChainRanked ranks by the rewards themselves, so reward_shaping does nothing",
    ),
    (
        lambda cast: cast.has(Whitened) and any(p.spread != "none" for p in cast.all(BatchScaled)),
        "Whitened after BatchScaled scales twice",
    ),
    (
        lambda cast: cast.has(RunningNormalized) and not cast.run.controllers,
        "RunningNormalized has no memory without controllers on its count, mean and std: it normalises by the batch alone",
    ),
    (
        lambda cast: any(
            p.cost == f"score/{reward.name}" and reward.weight
            for p in cast.all(CostConstraint)
            for reward in cast.run.rewards
        ),
        "CostConstraint prices a cost that is a reward besides: give that reward weight 0",
    ),
    (
        lambda cast: cast.has(ObservationLikelihood) and not cast.has(Conversation),
        "ObservationLikelihood learns from observations, and this engine yields none: engine=Conversation()",
    ),
    (
        lambda cast: cast.has(OneTokenRollout) and cast.run.sampling.temperature != 1,
        "OneTokenRollout has a temperature of its own, on top of sampling.temperature",
    ),
    (
        lambda cast: cast.has(SpreadReturn) and not cast.has(*NO_GROUP),
        "SpreadReturn changes nothing for an estimator that sums a rollout's rewards",
    ),
    (
        lambda cast: (
            cast.has(DirectPreference, AdvantageRegression) and not isinstance(cast.run.aggregation, SequenceSum)
        ),
        "the losses of DirectPreference and AdvantageRegression are of whole rollouts: aggregation=SequenceSum()",
    ),
)


def _never_clips(cast: Cast) -> bool:
    """Whether parts go by the ratio to the anchor, and it is 1 at every gradient: the anchor is the policy before the only update.

    Anchors at the version that sampled are that too where no data is stale. A part that also reads the ratio to the sampler has that
    to go by, and one with stages takes several updates of its own.
    """
    run = cast.run
    at_update = isinstance(run.anchor, Recompute) or (run.anchor.at_sampling and run.max_staleness == 0)
    by_ratio = any(
        UPDATE in part.consumes and DISCREPANCY not in part.consumes and type(part).stages is AbstractObjective.stages
        for part in (run.objective, *run.regularisers)
    )
    return cast.updates == 1 and at_update and by_ratio


def _other_weights(part: LogTamed, run: Run) -> bool:
    given = {reward.name: reward.weight for reward in run.rewards}
    names = part.rewards or tuple(sorted(given))
    return any(
        weight != given.get(name) for name, weight in zip(names, part.weights or (1.0,) * len(names), strict=True)
    )


def _follows(run: Run, learning_rate: float) -> bool:
    """Whether a part's idea of the learning rate is the run's, or is moved to be."""
    return learning_rate == run.optimization.learning_rate or any(
        path.endswith("learning_rate") for path in run.controllers
    )
