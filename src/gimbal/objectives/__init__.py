"""Surrogates, regularisers and discrepancy weights: one file each."""

from gimbal.objectives.advantage_regression import AdvantageRegression
from gimbal.objectives.balanced_clip import BalancedClip
from gimbal.objectives.base import AbstractCorrection, AbstractMask, AbstractObjective
from gimbal.objectives.clipped_ratio import ClippedRatio
from gimbal.objectives.clipped_weight import ClippedWeight
from gimbal.objectives.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.convex_kl import ConvexKL
from gimbal.objectives.covariance_kl import CovarianceKL
from gimbal.objectives.covariance_mask import CovarianceMask
from gimbal.objectives.curvature_mask import CurvatureMask
from gimbal.objectives.direct_preference import DirectPreference
from gimbal.objectives.disagreement import AgreementEntropyBonus, DisagreementMask
from gimbal.objectives.discrepancy_band import DiscrepancyBand
from gimbal.objectives.entropy_bonus import EntropyBonus
from gimbal.objectives.entropy_gated_kl import EntropyGatedKL
from gimbal.objectives.entropy_smoothing import EntropySmoothing
from gimbal.objectives.gaussian_trust import GaussianTrust
from gimbal.objectives.guarded_turns import GuardedTurns
from gimbal.objectives.guided_ratio import GuidedRatio
from gimbal.objectives.hazard import HazardModulated
from gimbal.objectives.huber_value_loss import HuberValueLoss
from gimbal.objectives.kl_hinge import KLHinge
from gimbal.objectives.kl_penalty import KLPenalty
from gimbal.objectives.likelihood import Likelihood
from gimbal.objectives.masked_weight import MaskedWeight
from gimbal.objectives.member_value_loss import EnsembleValueLoss, MultiHorizonValueLoss
from gimbal.objectives.moving_clip import MovingClip
from gimbal.objectives.observation_likelihood import ObservationLikelihood
from gimbal.objectives.one_token_rollout import OneTokenRollout
from gimbal.objectives.parts_clipped import PartsClipped
from gimbal.objectives.pivot_mask import PivotMask
from gimbal.objectives.ranking_loss import RankingLoss
from gimbal.objectives.ratio_variance import RatioVariance
from gimbal.objectives.reinforce import Reinforce
from gimbal.objectives.right_likelihood import RightLikelihood
from gimbal.objectives.sequence_ratio import SequenceRatio
from gimbal.objectives.sequence_weight import SequenceWeight
from gimbal.objectives.tapered_ratio import TaperedRatio
from gimbal.objectives.total_ratio_weight import TotalRatioWeight
from gimbal.objectives.truncated_weight import TruncatedWeight
from gimbal.objectives.turn_suffix import TurnSuffix
from gimbal.objectives.turn_sweep import TurnSweep
from gimbal.objectives.turn_value_loss import TurnValueLoss
from gimbal.objectives.two_channel_ratio import TwoChannelRatio
from gimbal.objectives.value_loss import ValueLoss

__all__ = [
    "AbstractCorrection",
    "AbstractMask",
    "AbstractObjective",
    "AdvantageRegression",
    "AgreementEntropyBonus",
    "BalancedClip",
    "ClippedRatio",
    "ClippedWeight",
    "ContrastiveLikelihood",
    "ConvexKL",
    "CovarianceKL",
    "CovarianceMask",
    "CurvatureMask",
    "DirectPreference",
    "DisagreementMask",
    "DiscrepancyBand",
    "EnsembleValueLoss",
    "EntropyBonus",
    "EntropyGatedKL",
    "EntropySmoothing",
    "GaussianTrust",
    "GuardedTurns",
    "GuidedRatio",
    "HazardModulated",
    "HuberValueLoss",
    "KLHinge",
    "KLPenalty",
    "Likelihood",
    "MaskedWeight",
    "MovingClip",
    "MultiHorizonValueLoss",
    "ObservationLikelihood",
    "OneTokenRollout",
    "PartsClipped",
    "PivotMask",
    "RankingLoss",
    "RatioVariance",
    "Reinforce",
    "RightLikelihood",
    "SequenceRatio",
    "SequenceWeight",
    "TaperedRatio",
    "TotalRatioWeight",
    "TruncatedWeight",
    "TurnSuffix",
    "TurnSweep",
    "TurnValueLoss",
    "TwoChannelRatio",
    "ValueLoss",
]
