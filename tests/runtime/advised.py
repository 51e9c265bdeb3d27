"""For each rule by which a part advises on a run: such a run, the sentence, and what it says to type."""

import math
from dataclasses import replace

from refused import CASES, CRITIC, DECOUPLED, OLD, ROUTED, TEMPERED
from small import Digits

from gimbal.advantages import (
    GAE,
    DiscrepancyPenalty,
    GroupCentered,
    GroupNormalized,
    KLReward,
    ReturnToGo,
    SeatCentered,
    Whitened,
)
from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.advantages.estimators.chain_ranked import ChainRanked
from gimbal.advantages.estimators.cross_rollout import CrossRolloutBaseline
from gimbal.advantages.estimators.median_centered import MedianCentered
from gimbal.advantages.estimators.minimum_variance import MinimumVarianceCentered
from gimbal.advantages.estimators.revision_normalized import RevisionNormalized
from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.advantages.estimators.tree_shaped import TreeShaped
from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.advantages.estimators.turn_samples import TurnBalanced
from gimbal.advantages.reward_shaping.cost_constraint import CostConstraint
from gimbal.advantages.reward_shaping.log_tamed import LogTamed
from gimbal.advantages.reward_shaping.relative_length import RelativeLength
from gimbal.advantages.reward_shaping.spread_return import SpreadReturn
from gimbal.advantages.shapings.entropy_shaped import EntropyShaped
from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.controllers import Linear, Region, Stability
from gimbal.critics.members import Ensemble
from gimbal.critics.probe import Probe
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.budgets.deepened import Deepened
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.dataflow.curricula.allocated import Allocated
from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.dataflow.curricula.solved_share import SolvedShare
from gimbal.dataflow.filters.control_prefix import ControlPrefix
from gimbal.dataflow.filters.first_of import FirstOf
from gimbal.dataflow.filters.keep_solved import KeepSolved
from gimbal.dataflow.filters.step_repair import StepRepair
from gimbal.dataflow.filters.superseded import Superseded
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.replay.buffer import Buffer
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.recent import Recent
from gimbal.dataflow.replay.swarm import Swarm
from gimbal.dataflow.staleness import DropStale, Pace, Reweight
from gimbal.engines.native import Native
from gimbal.environments.terminal import Terminal
from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.learning.proximal.snapshots import Snapshots
from gimbal.objectives import ClippedRatio, EntropyBonus, ExactKL, KLPenalty, SequenceRatio, TruncatedWeight, ValueLoss
from gimbal.objectives.masks.covariance_mask import CovarianceMask
from gimbal.objectives.masks.curvature_mask import CurvatureMask
from gimbal.objectives.masks.disagreement import DisagreementMask
from gimbal.objectives.regularisers.agreement_entropy_bonus import AgreementEntropyBonus
from gimbal.objectives.regularisers.kl_hinge import KLHinge
from gimbal.objectives.regularisers.observation_likelihood import ObservationLikelihood
from gimbal.objectives.surrogates.advantage_regression import AdvantageRegression
from gimbal.objectives.surrogates.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.surrogates.direct_preference import DirectPreference
from gimbal.objectives.surrogates.gaussian_trust import GaussianTrust
from gimbal.objectives.surrogates.guided_ratio import GuidedRatio
from gimbal.objectives.surrogates.one_token_rollout import OneTokenRollout
from gimbal.objectives.surrogates.parts_clipped import PartsClipped
from gimbal.objectives.surrogates.ratio_variance import RatioVariance
from gimbal.objectives.surrogates.sequence_weight import SequenceWeight
from gimbal.objectives.surrogates.trajectory_balance import TrajectoryBalance
from gimbal.objectives.values.member_value_loss import MultiHorizonValueLoss
from gimbal.objectives.values.turn_value_loss import TurnValueLoss
from gimbal.ops import ConstantMean, SequenceMean, SequenceSum
from gimbal.ops.part_mean import PartMean
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.rewards.expected import Expected
from gimbal.rewards.paid import Paid
from gimbal.rewards.tool_calls import ToolCalls
from gimbal.workflows.agent import Agent
from gimbal.workflows.branching import Branching
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.guided import Guided
from gimbal.workflows.lessons import Lessons
from gimbal.workflows.privileged_context import PrivilegedContext
from gimbal.workflows.retrying import Retrying
from gimbal.workflows.shared_tree import SharedTree
from gimbal.workflows.skill_evolution import SkillEvolution

VCPO = {
    "objective": SequenceWeight(cap=8.0),
    "advantage": MinimumVarianceCentered(cap=8.0),
    "aggregation": ConstantMean(),
}

DRAWN = {name: vars(flow_grpo())[name] for name in ("policy", "engine", "tasks", "sampling", "rewards", "objective")}

ADVICE = [
    ({"budget": UntilMixed()}, "so it adds none: num_generations=8", {"num_generations": 8}),
    (
        {"budget": IntervalShared(first=4)},
        "so it shares none: num_generations=8, or budget.first=0",
        {"budget": IntervalShared()},
    ),
    ({"budget": Deepened(most=4)}, "deepens nothing: budget.most=16", {"budget": Deepened(most=16)}),
    (
        {"filters": (FirstOf(),)},
        "so it drops none: num_generations=16, or FirstOf(count=2)",
        {"filters": (FirstOf(count=2),)},
    ),
    (
        {**ROUTED, "policy": replace(ROUTED["policy"], dtype="bfloat16")},
        "policy.dtype=float32 engine.precision=float32 has no such gap",
        {"policy": ROUTED["policy"], "engine": Native(precision="float32")},
    ),
    (
        {"workflow": Agent(program="cat"), "max_staleness": 1},
        "goes by the clock",
        {"workflow": Agent(program="cat", overlap=8)},
    ),
    ({"store": Swarm()}, "from its own rollouts alone", {"store": Once()}),
    ({**DRAWN, "objective": ClippedRatio()}, r"set objective=ClippedStep()", DRAWN),
    (
        {**DRAWN, "objective": ClippedRatio()},
        "or sampling.reduce=sum",
        {"sampling": replace(DRAWN["sampling"], reduce="sum")},
    ),
    (
        {"workflow": Lessons(cases=CASES)},
        "rewards any lesson while lessons help on average",
        {"advantage": SeatCentered(scale=True)},
    ),
    (
        {"workflow": SkillEvolution(reward=Digits()), "rewards": (), "held_out": None},
        "share the score of the last",
        {"advantage": RevisionNormalized()},
    ),
    (
        {"workflow": SharedTree(reward=Digits()), "rewards": (), "held_out": None},
        "compared without their parents",
        {"advantage": TreeShaped()},
    ),
    (
        {"workflow": Branching(trunks=4)},
        "nothing branches unless a budget or a column",
        {"workflow": Branching(trunks=2)},
    ),
    (
        {"workflow": Dialogue(tool=Terminal())},
        "what Terminal pays an episode is added to what the rewards give, and the first of these",
        {"workflow": Dialogue(tool=Terminal()), "rewards": (Paid(), Digits())},
    ),
    ({"workflow": Retrying(firsts=4)}, "so nothing is retried", {"workflow": Retrying(firsts=2)}),
    ({**OLD, "store": Recent()}, "what Recent brings back may be up to 2 versions old", {"store": Once()}),
    ({**OLD, "store": Buffer()}, "Buffer gives the bound up", {"store": Once()}),
    ({}, "the clip never acts", {"optimization": Optimization(minibatches=4)}),
    (
        {"anchor": SamplingVersion(window=1), "max_staleness": 1},
        "of older weights, which then counts",
        {"engine": Native(cache="recompute")},
    ),
    (
        {"stability": Stability(), "controllers": {"optimization.learning_rate": Linear(steps=4)}},
        "move stability.region.kl instead",
        {"controllers": {"stability.region.kl": Linear(initial=0.01, final=0.001, steps=4)}},
    ),
    (
        {"stability": Stability(), "workflow": Guided()},
        "slows the closed loop to its least rate",
        {"stability": Stability(region=Region(discrepancy=math.inf))},
    ),
    (
        {"stability": Stability(), "workflow": PrivilegedContext(template="7{prompt}")},
        "without their context by design",
        {"stability": Stability(region=Region(discrepancy=math.inf))},
    ),
    (
        {"workflow": Guided()},
        "trains on them as if the policy had drawn them",
        {"workflow": Guided(), "filters": (StepRepair(),), "objective": GuidedRatio()},
    ),
    ({"oversampling": 2.0}, "oversampling has no effect without filters", {"filters": (ZeroVariance(),)}),
    ({"staleness": Reweight(), "correction": TruncatedWeight()}, "drops the bound", {"staleness": Pace()}),
    ({"max_staleness": 1, "staleness": DropStale()}, "selects against slow rollouts", {"staleness": Pace()}),
    (
        {"shaping": (DiscrepancyPenalty(),), "max_staleness": 1},
        "penalises what was learned since",
        {"anchor": SamplingVersion(window=1)},
    ),
    ({"objective": SequenceRatio()}, "than SequenceMean weights long sequences", {"aggregation": SequenceMean()}),
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
        "pull the policy towards the reference",
        {"reward_shaping": ()},
    ),
    (
        {"regularisers": (KLPenalty(estimator="k1"),)},
        "no expected gradient",
        {"regularisers": (KLPenalty(estimator="k2"),)},
    ),
    (
        {"regularisers": (ExactKL(),), "policy": CausalLM(model="of/the-hub")},
        "ExactKL keeps a number for each of up to 80 decisions and each token",
        {"regularisers": (KLPenalty(estimator="k2"),)},
    ),
    ({"shaping": (EntropyShaped(), NoveltySharpened())}, "two separate caps", {"shaping": (EntropyShaped(),)}),
    ({"advantage": MedianCentered()}, "no rollout is the median", {"num_generations": 5}),
    ({"aggregation": PartMean(control=5.0)}, "this run marks none", {"filters": (ControlPrefix(),)}),
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
        "weights them again",
        {"aggregation": SequenceMean()},
    ),
    ({"rewards": (Digits(), Expected())}, "a group estimator cancels it", {"advantage": ReturnToGo()}),
    ({"shaping": (TemperedImitation(),)}, "so it does nothing", TEMPERED),
    ({"advantage": SignedOutcome(), "filters": (ZeroVariance(),)}, "but ZeroVariance drops them", {"filters": ()}),
    ({"advantage": SignedOutcome(), "shaping": (Whitened(),)}, "that SignedOutcome leaves out", {"shaping": ()}),
    (
        {"masks": (CurvatureMask(learning_rate=1e-4),)},
        "so it predicts other shifts",
        {"masks": (CurvatureMask(learning_rate=1e-3),)},
    ),
    (
        {**VCPO, "optimization": Optimization(minibatches=2)},
        "only for the first update on a batch",
        {"optimization": Optimization()},
    ),
    (
        {**VCPO, "objective": SequenceWeight(cap=2.0)},
        "optimal for another gradient",
        {"objective": SequenceWeight(cap=8.0)},
    ),
    ({**VCPO, "shaping": (Whitened(),)}, "where the variance is least", {"shaping": ()}),
    ({**VCPO, "aggregation": SequenceMean()}, "divides it by lengths", {"aggregation": ConstantMean()}),
    ({"anchor": Snapshots()}, "no part reads the past weights", {"objective": GaussianTrust()}),
    (
        {"objective": GaussianTrust(), "optimization": Optimization(epochs=2)},
        "its pull fades far away",
        {"objective": GaussianTrust(clip_low=0.2, clip_high=0.2)},
    ),
    ({"reference_resets": (2,)}, "renews a reference that no part reads", {"regularisers": (KLPenalty(),)}),
    ({"reference_rate": 0.1}, "moves a reference that no part reads", {"regularisers": (KLPenalty(),)}),
    ({"curriculum": Hinted()}, "still fill batches", {"filters": (Superseded(),)}),
    (
        {"reward_shaping": (RelativeLength(right="digits"),), "filters": (ZeroVariance(),)},
        "differ only in length",
        {"filters": ()},
    ),
    (
        {**CRITIC, "advantage": TurnGAE(), "regularisers": (ValueLoss(),)},
        "fits them only there",
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
        "Whitened adds one",
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
    ({"shaping": (TurnBalanced(),)}, "weights turns again", {"aggregation": SequenceMean()}),
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
        "also a reward",
        {"rewards": (Digits(weight=0.0),)},
    ),
    ({"regularisers": (ObservationLikelihood(),)}, "but this run has none", {"workflow": Dialogue()}),
    ({"rewards": (Digits(), ToolCalls())}, "nothing answers any in this run", {"workflow": Dialogue()}),
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
        "DirectPreference is over whole rollouts",
        {"aggregation": SequenceSum()},
    ),
    (
        {"objective": AdvantageRegression(), "aggregation": SequenceMean()},
        "AdvantageRegression is over whole rollouts",
        {"aggregation": SequenceSum()},
    ),
    (
        {"objective": TrajectoryBalance(), "aggregation": SequenceMean()},
        "TrajectoryBalance is over whole rollouts",
        {"aggregation": SequenceSum()},
    ),
    (
        {"objective": TrajectoryBalance(), "regularisers": (KLPenalty(),)},
        "two parts pull the policy towards the reference",
        {"regularisers": ()},
    ),
    (
        {"curriculum": SolvedShare(necessary="digits", steps="digits")},
        "which solved groups KeepSolved",
        {"filters": (KeepSolved(),)},
    ),
    ({**CRITIC, "regularisers": (TurnValueLoss(),)}, "fits them only there", {"advantage": TurnGAE()}),
    (
        {"regularisers": (AgreementEntropyBonus(), ValueLoss()), **CRITIC},
        "cannot disagree with itself",
        {"critic": Ensemble(critics=(HiddenValue(), HiddenValue(hidden=(8,))))},
    ),
    (
        {"rewards": (Digits(weight=2.0),), "reward_shaping": (LogTamed(),)},
        "it subtracts other amounts than they added",
        {"rewards": (Digits(),)},
    ),
]
