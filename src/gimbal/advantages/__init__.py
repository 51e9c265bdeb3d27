"""Advantage estimators, advantage shapings and reward shapings: one file each."""

from gimbal.advantages.added_reward import AddedReward
from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.advantages.batch_scaled import BatchScaled
from gimbal.advantages.beta_normalized import BetaNormalized
from gimbal.advantages.chain_ranked import ChainRanked
from gimbal.advantages.cliff_probe import CliffProbe
from gimbal.advantages.cost_constraint import CostConstraint
from gimbal.advantages.cross_rollout import CrossRolloutBaseline
from gimbal.advantages.discrepancy_penalty import DiscrepancyPenalty
from gimbal.advantages.edge_averaged import EdgeAveraged
from gimbal.advantages.entropy_consistency import EntropyConsistency
from gimbal.advantages.entropy_shaped import EntropyShaped
from gimbal.advantages.gae import GAE, ReturnToGo
from gimbal.advantages.group_centered import GroupCentered
from gimbal.advantages.group_normalized import GroupNormalized
from gimbal.advantages.horizon_routed import HorizonRouted
from gimbal.advantages.kl_reward import KLReward
from gimbal.advantages.leaf_mean import LeafMean
from gimbal.advantages.leave_one_out import LeaveOneOut
from gimbal.advantages.log_mean_exp_centered import LogMeanExpCentered
from gimbal.advantages.log_tamed import LogTamed
from gimbal.advantages.median_centered import MedianCentered
from gimbal.advantages.minimum_variance import MinimumVarianceCentered
from gimbal.advantages.novelty_sharpened import NoveltySharpened
from gimbal.advantages.polychromic import Polychromic
from gimbal.advantages.position_normalized import PositionNormalized
from gimbal.advantages.positive_amplified import PositiveAmplified
from gimbal.advantages.rank_shaped import RankShaped
from gimbal.advantages.ranked_rightly import RankedRightly
from gimbal.advantages.relative_length import RelativeLength
from gimbal.advantages.residual_weighted import ResidualWeighted
from gimbal.advantages.reward_decoupled import RewardDecoupled
from gimbal.advantages.running_normalized import RunningNormalized
from gimbal.advantages.signed_outcome import SignedOutcome
from gimbal.advantages.spread_return import SpreadReturn
from gimbal.advantages.step_blended import StepBlended
from gimbal.advantages.stratified import Stratified
from gimbal.advantages.tempered_imitation import TemperedImitation
from gimbal.advantages.turn_discount import TurnDiscount
from gimbal.advantages.turn_gae import TurnGAE
from gimbal.advantages.turn_samples import TurnBalanced, TurnSamples
from gimbal.advantages.whitened import Whitened

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
    "EdgeAveraged",
    "EntropyConsistency",
    "EntropyShaped",
    "GroupCentered",
    "GroupNormalized",
    "HorizonRouted",
    "KLReward",
    "LeafMean",
    "LeaveOneOut",
    "LogMeanExpCentered",
    "LogTamed",
    "MedianCentered",
    "MinimumVarianceCentered",
    "NoveltySharpened",
    "Polychromic",
    "PositionNormalized",
    "PositiveAmplified",
    "RankShaped",
    "RankedRightly",
    "RelativeLength",
    "ResidualWeighted",
    "ReturnToGo",
    "RewardDecoupled",
    "RunningNormalized",
    "SignedOutcome",
    "SpreadReturn",
    "StepBlended",
    "Stratified",
    "TemperedImitation",
    "TurnBalanced",
    "TurnDiscount",
    "TurnGAE",
    "TurnSamples",
    "Whitened",
]
