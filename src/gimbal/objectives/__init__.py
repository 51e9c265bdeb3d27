"""Surrogates, regularisers and discrepancy weights: one file each."""

from gimbal.objectives.base import AbstractCorrection, AbstractObjective
from gimbal.objectives.clipped_ratio import ClippedRatio
from gimbal.objectives.clipped_weight import ClippedWeight
from gimbal.objectives.entropy_bonus import EntropyBonus
from gimbal.objectives.kl_penalty import KLPenalty
from gimbal.objectives.likelihood import Likelihood
from gimbal.objectives.masked_weight import MaskedWeight
from gimbal.objectives.reinforce import Reinforce
from gimbal.objectives.sequence_ratio import SequenceRatio
from gimbal.objectives.truncated_weight import TruncatedWeight
from gimbal.objectives.value_loss import ValueLoss

__all__ = [
    "AbstractCorrection",
    "AbstractObjective",
    "ClippedRatio",
    "ClippedWeight",
    "EntropyBonus",
    "KLPenalty",
    "Likelihood",
    "MaskedWeight",
    "Reinforce",
    "SequenceRatio",
    "TruncatedWeight",
    "ValueLoss",
]
