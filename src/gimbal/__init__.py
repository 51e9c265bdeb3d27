"""Reinforcement-learning post-training that stays stable when generation and training are decoupled.

``gimbal.train("demo")`` runs a recipe; beneath it lie ``Run`` (every part of an experiment), ``Learner`` (``forward_backward``,
``optim_step``, ``save_state``, ``load_state``) and the methods, which are callables on plain tensors. Nothing here imports torch
before it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_PLACES = {
    "gimbal.api": ("Result", "compare", "evaluate", "train"),
    "gimbal.learning.learner": ("Learner",),
    "gimbal.learning.optimization": ("Optimization",),
    "gimbal.learning.updates.policy_gradient": ("PolicyGradient",),
    "gimbal.policies.token": ("Sampling",),
    "gimbal.records": ("Drop", "Group", "Rollout", "Task", "Terms", "TrainBatch"),
    "gimbal.runtime.run": ("HeldOut", "Run"),
}
_MODULES = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [*sorted(_MODULES), "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'gimbal' has no attribute {name!r}")
    return vars(importlib.import_module(_MODULES[name]))[name]


def __dir__() -> list[str]:
    return __all__
