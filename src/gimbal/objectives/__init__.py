"""Surrogates, regularisers and discrepancy weights: one file each."""

from gimbal.objectives.base import AbstractCorrection, AbstractMask, AbstractObjective
from gimbal.objectives.corrections.masked_weight import MaskedWeight
from gimbal.objectives.corrections.truncated_weight import TruncatedWeight
from gimbal.objectives.masks.covariance_mask import CovarianceMask
from gimbal.objectives.masks.curvature_mask import CurvatureMask
from gimbal.objectives.masks.disagreement import DisagreementMask
from gimbal.objectives.masks.discrepancy_band import DiscrepancyBand
from gimbal.objectives.masks.pivot_mask import PivotMask
from gimbal.objectives.masks.step_entropy import StepEntropy
from gimbal.objectives.masks.turn_suffix import TurnSuffix
from gimbal.objectives.regularisers.agreement_entropy_bonus import AgreementEntropyBonus
from gimbal.objectives.regularisers.convex_kl import ConvexKL
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.objectives.regularisers.entropy_gated_kl import EntropyGatedKL
from gimbal.objectives.regularisers.entropy_smoothing import EntropySmoothing
from gimbal.objectives.regularisers.exact_kl import ExactKL
from gimbal.objectives.regularisers.gated_step_kl import GatedStepKL
from gimbal.objectives.regularisers.kl_hinge import KLHinge
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.objectives.regularisers.observation_likelihood import ObservationLikelihood
from gimbal.objectives.regularisers.reference_action import ReferenceAction
from gimbal.objectives.regularisers.right_likelihood import RightLikelihood
from gimbal.objectives.regularisers.staggered_forcing import StaggeredForcing
from gimbal.objectives.regularisers.step_kl import StepKL
from gimbal.objectives.regularisers.velocity_penalty import VelocityPenalty
from gimbal.objectives.surrogates.advantage_regression import AdvantageRegression
from gimbal.objectives.surrogates.balanced_clip import BalancedClip
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.objectives.surrogates.clipped_step import ClippedStep
from gimbal.objectives.surrogates.clipped_weight import ClippedWeight
from gimbal.objectives.surrogates.contrastive_likelihood import ContrastiveLikelihood
from gimbal.objectives.surrogates.covariance_kl import CovarianceKL
from gimbal.objectives.surrogates.direct_preference import DirectPreference
from gimbal.objectives.surrogates.gaussian_trust import GaussianTrust
from gimbal.objectives.surrogates.guarded_turns import GuardedTurns
from gimbal.objectives.surrogates.guided_ratio import GuidedRatio
from gimbal.objectives.surrogates.hazard import HazardModulated
from gimbal.objectives.surrogates.joints_clipped import JointsClipped
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.objectives.surrogates.moving_clip import MovingClip
from gimbal.objectives.surrogates.normalized_step import NormalizedStep
from gimbal.objectives.surrogates.one_token_rollout import OneTokenRollout
from gimbal.objectives.surrogates.parts_clipped import PartsClipped
from gimbal.objectives.surrogates.ratio_variance import RatioVariance
from gimbal.objectives.surrogates.reinforce import Reinforce
from gimbal.objectives.surrogates.sequence_ratio import SequenceRatio
from gimbal.objectives.surrogates.sequence_weight import SequenceWeight
from gimbal.objectives.surrogates.tapered_ratio import TaperedRatio
from gimbal.objectives.surrogates.total_ratio_weight import TotalRatioWeight
from gimbal.objectives.surrogates.trajectory_balance import FlowBalance, TrajectoryBalance
from gimbal.objectives.surrogates.turn_sweep import TurnSweep
from gimbal.objectives.surrogates.two_channel_ratio import TwoChannelRatio
from gimbal.objectives.values.huber_value_loss import HuberValueLoss
from gimbal.objectives.values.member_value_loss import EnsembleValueLoss, MultiHorizonValueLoss
from gimbal.objectives.values.ranking_loss import RankingLoss
from gimbal.objectives.values.turn_value_loss import TurnValueLoss
from gimbal.objectives.values.value_loss import ValueLoss

__all__ = [
    "AbstractCorrection",
    "AbstractMask",
    "AbstractObjective",
    "AdvantageRegression",
    "AgreementEntropyBonus",
    "BalancedClip",
    "ClippedRatio",
    "ClippedStep",
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
    "ExactKL",
    "FlowBalance",
    "GatedStepKL",
    "GaussianTrust",
    "GuardedTurns",
    "GuidedRatio",
    "HazardModulated",
    "HuberValueLoss",
    "JointsClipped",
    "KLHinge",
    "KLPenalty",
    "Likelihood",
    "MaskedWeight",
    "MovingClip",
    "MultiHorizonValueLoss",
    "NormalizedStep",
    "ObservationLikelihood",
    "OneTokenRollout",
    "PartsClipped",
    "PivotMask",
    "RankingLoss",
    "RatioVariance",
    "ReferenceAction",
    "Reinforce",
    "RightLikelihood",
    "SequenceRatio",
    "SequenceWeight",
    "StaggeredForcing",
    "StepEntropy",
    "StepKL",
    "TaperedRatio",
    "TotalRatioWeight",
    "TrajectoryBalance",
    "TruncatedWeight",
    "TurnSuffix",
    "TurnSweep",
    "TurnValueLoss",
    "TwoChannelRatio",
    "ValueLoss",
    "VelocityPenalty",
]
