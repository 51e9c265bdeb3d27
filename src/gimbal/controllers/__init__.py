"""Rules that move a coefficient from step to step: one file each."""

from gimbal.controllers.acceptance import Acceptance
from gimbal.controllers.adaptive_kl import AdaptiveKL
from gimbal.controllers.base import AbstractController, AbstractStepSize
from gimbal.controllers.delayed import Delayed
from gimbal.controllers.effective_sample_size import EffectiveSampleSize
from gimbal.controllers.fallback import Fallback
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.controllers.linear import Linear
from gimbal.controllers.new_extremes import NewExtremes
from gimbal.controllers.phased_pid import PhasedPID
from gimbal.controllers.ready import Ready
from gimbal.controllers.smoothed import Smoothed
from gimbal.controllers.stability import Region, Stability
from gimbal.controllers.staircase import Staircase
from gimbal.controllers.two_phase_decay import TwoPhaseDecay

__all__ = [
    "AbstractController",
    "AbstractStepSize",
    "Acceptance",
    "AdaptiveKL",
    "Delayed",
    "EffectiveSampleSize",
    "Fallback",
    "Lagrangian",
    "Linear",
    "NewExtremes",
    "PhasedPID",
    "Ready",
    "Region",
    "Smoothed",
    "Stability",
    "Staircase",
    "TwoPhaseDecay",
]
