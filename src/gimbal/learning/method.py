"""The learning half of a run: what turns groups of rollouts into a gradient step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.controllers.base import AbstractController, AbstractStepSize
from gimbal.learning.proximal.base import AbstractAnchor
from gimbal.learning.proximal.recompute import Recompute
from gimbal.objectives.base import AbstractCorrection, AbstractMask, AbstractObjective
from gimbal.ops import AbstractAggregation, TokenMean


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """How a step moves the weights: AdamW on clipped gradients, ``epochs`` passes over the batch of ``minibatches`` updates each.

    ``learning_rate`` is reached linearly over ``warmup_steps`` learner steps, then constant, or decays to 0 at the run's end.
    ``microbatch_tokens`` bounds the positions of one forward pass; it changes memory and speed, never the gradient.
    ``checkpointing`` recomputes activations in the backward pass: less memory, a third more time.
    """

    learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    beta1: float = 0.9
    beta2: float = 0.95
    epsilon: float = 1e-8
    weight_decay: float = 0.0
    warmup_steps: int = 0
    decay: Literal["constant", "linear", "cosine"] = "constant"
    max_grad_norm: float = 1.0
    epochs: int = 1
    minibatches: int = 1
    microbatch_tokens: int = 16384
    checkpointing: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "minibatches", "microbatch_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"optimization.{name} is {getattr(self, name)}; it must be at least 1")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"optimization.{name} is {getattr(self, name)}; it lies in [0, 1)")
        for name in ("warmup_steps", "epsilon", "weight_decay", "max_grad_norm"):
            if getattr(self, name) < 0:
                raise ValueError(f"optimization.{name} is {getattr(self, name)}; it must be 0 or above")
        for name in ("learning_rate", "critic_learning_rate"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"optimization.{name} is {getattr(self, name)}; it is a number of 0 or above")


@dataclass(frozen=True, kw_only=True)
class AbstractMethod:
    """What the learner reads. Order of use: anchor, reward_shaping, advantage, shaping; then, for each minibatch, masks, correction,
    objective, aggregation, step_size.

    ``controllers`` maps dotted paths into this record to the rules that move the numbers there. At each version in
    ``reference_resets`` the reference becomes the present policy; it is the first policy before.
    """

    objective: AbstractObjective
    advantage: AbstractAdvantage
    reward_shaping: tuple[AbstractRewardShaping, ...] = ()
    shaping: tuple[AbstractAdvantage, ...] = ()
    masks: tuple[AbstractMask, ...] = ()
    correction: AbstractCorrection | None = None
    regularisers: tuple[AbstractObjective, ...] = ()
    aggregation: AbstractAggregation = TokenMean()
    anchor: AbstractAnchor = Recompute()
    controllers: Mapping[str, AbstractController] = field(default_factory=dict)
    step_size: AbstractStepSize | None = None
    reference_resets: tuple[int, ...] = ()
    optimization: Optimization = Optimization()


@dataclass(frozen=True, kw_only=True)
class Method(AbstractMethod):
    """The learning half alone, for a ``Learner`` in somebody else's loop."""
