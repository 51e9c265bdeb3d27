"""Advantage estimators, advantage shapings and reward shapings: one file each."""

from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.advantages.estimators.batch_scaled import BatchScaled
from gimbal.advantages.estimators.beta_normalized import BetaNormalized
from gimbal.advantages.estimators.chain_ranked import ChainRanked
from gimbal.advantages.estimators.cross_rollout import CrossRolloutBaseline
from gimbal.advantages.estimators.distillation import Distillation
from gimbal.advantages.estimators.gae import GAE, ReturnToGo
from gimbal.advantages.estimators.group_centered import GroupCentered
from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.advantages.estimators.horizon_routed import HorizonRouted
from gimbal.advantages.estimators.inclusion_normalized import InclusionNormalized
from gimbal.advantages.estimators.leaf_mean import LeafMean
from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.advantages.estimators.log_mean_exp_centered import LogMeanExpCentered
from gimbal.advantages.estimators.median_centered import MedianCentered
from gimbal.advantages.estimators.minimum_variance import MinimumVarianceCentered
from gimbal.advantages.estimators.node_normalized import NodeNormalized
from gimbal.advantages.estimators.polychromic import Polychromic
from gimbal.advantages.estimators.position_normalized import PositionNormalized
from gimbal.advantages.estimators.revision_normalized import RevisionNormalized
from gimbal.advantages.estimators.reward_decoupled import RewardDecoupled
from gimbal.advantages.estimators.seat_centered import SeatCentered
from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.advantages.estimators.stratified import Stratified
from gimbal.advantages.estimators.tree_shaped import TreeShaped
from gimbal.advantages.estimators.turn_gae import TurnGAE
from gimbal.advantages.estimators.turn_samples import TurnBalanced, TurnSamples
from gimbal.advantages.forest import Forest
from gimbal.advantages.reward_shaping.added_reward import AddedReward
from gimbal.advantages.reward_shaping.cliff_probe import CliffProbe
from gimbal.advantages.reward_shaping.cost_constraint import CostConstraint
from gimbal.advantages.reward_shaping.entropy_consistency import EntropyConsistency
from gimbal.advantages.reward_shaping.kl_reward import KLReward
from gimbal.advantages.reward_shaping.log_tamed import LogTamed
from gimbal.advantages.reward_shaping.priced_cost import PricedCost
from gimbal.advantages.reward_shaping.ranked_rightly import RankedRightly
from gimbal.advantages.reward_shaping.relative_length import RelativeLength
from gimbal.advantages.reward_shaping.running_normalized import RunningNormalized
from gimbal.advantages.reward_shaping.spread_return import SpreadReturn
from gimbal.advantages.shapings.discrepancy_penalty import DiscrepancyPenalty
from gimbal.advantages.shapings.diversity_weighted import DiversityWeighted
from gimbal.advantages.shapings.edge_averaged import EdgeAveraged
from gimbal.advantages.shapings.emphasised import Emphasised
from gimbal.advantages.shapings.entropy_shaped import EntropyShaped
from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.advantages.shapings.positive_amplified import PositiveAmplified
from gimbal.advantages.shapings.rank_shaped import RankShaped
from gimbal.advantages.shapings.residual_weighted import ResidualWeighted
from gimbal.advantages.shapings.scaled import Scaled
from gimbal.advantages.shapings.step_blended import StepBlended
from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.advantages.shapings.turn_discount import TurnDiscount
from gimbal.advantages.shapings.whitened import Whitened

__all__ = [
    "GAE",
    "AbstractAdvantage",
    "AbstractRewardShaping",
    "AddedReward",
    "BatchScaled",
    "BetaNormalized",
    "ChainRanked",
    "CliffProbe",
    "CostConstraint",
    "CrossRolloutBaseline",
    "DiscrepancyPenalty",
    "Distillation",
    "DiversityWeighted",
    "EdgeAveraged",
    "Emphasised",
    "EntropyConsistency",
    "EntropyShaped",
    "Forest",
    "GroupCentered",
    "GroupNormalized",
    "HorizonRouted",
    "InclusionNormalized",
    "KLReward",
    "LeafMean",
    "LeaveOneOut",
    "LogMeanExpCentered",
    "LogTamed",
    "MedianCentered",
    "MinimumVarianceCentered",
    "NodeNormalized",
    "NoveltySharpened",
    "Polychromic",
    "PositionNormalized",
    "PositiveAmplified",
    "PricedCost",
    "RankShaped",
    "RankedRightly",
    "RelativeLength",
    "ResidualWeighted",
    "ReturnToGo",
    "RevisionNormalized",
    "RewardDecoupled",
    "RunningNormalized",
    "Scaled",
    "SeatCentered",
    "SignedOutcome",
    "SpreadReturn",
    "StepBlended",
    "Stratified",
    "TemperedImitation",
    "TreeShaped",
    "TurnBalanced",
    "TurnDiscount",
    "TurnGAE",
    "TurnSamples",
    "Whitened",
]
