"""Advantage estimators, advantage shapings and reward shapings: one file each."""

from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.advantages.discrepancy_penalty import DiscrepancyPenalty
from gimbal.advantages.gae import GAE, ReturnToGo
from gimbal.advantages.group_centered import GroupCentered
from gimbal.advantages.group_normalized import GroupNormalized
from gimbal.advantages.kl_reward import KLReward
from gimbal.advantages.leave_one_out import LeaveOneOut
from gimbal.advantages.whitened import Whitened

__all__ = [
    "GAE",
    "AbstractAdvantage",
    "AbstractRewardShaping",
    "DiscrepancyPenalty",
    "GroupCentered",
    "GroupNormalized",
    "KLReward",
    "LeaveOneOut",
    "ReturnToGo",
    "Whitened",
]
