"""Rules that move a coefficient from step to step: one file each."""

from gimbal.controllers.adaptive_kl import AdaptiveKL
from gimbal.controllers.base import AbstractController
from gimbal.controllers.lagrangian import Lagrangian

__all__ = [
    "AbstractController",
    "AdaptiveKL",
    "Lagrangian",
]
