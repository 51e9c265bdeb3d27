"""How a step moves weights: the optimiser of each model, and the passes over a batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from gimbal.learning.optimizers import MOST_BETA2, SGD, AbstractOptimizer, AdamW, AdamW8bit, Muon

__all__ = ["AdamW", "Optimization"]

MOST = 1000.0  # of a learning rate and its like: beyond it weights are not numbers any more after a step


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """How a step updates the weights: with clipped gradients, in ``epochs`` passes over the batch of ``minibatches`` updates each.

    ``optimizer`` is for the policy; critics use AdamW. "adamw_8bit" keeps its moments in 8 bits (extra ``8bit``), "muon" updates the
    matrices of the blocks and AdamW the rest, "sgd" uses ``beta1`` as its momentum. ``optimizer_dtype`` is the type of AdamW's
    moments; "" is that of the weights.

    ``learning_rate`` rises linearly over ``warmup_steps`` learner steps, then stays constant or decays to 0 at the end of the run.
    ``microbatch_tokens`` limits the positions of one forward pass; it changes memory and speed, never the gradient.
    ``checkpointing`` recomputes activations in the backward pass: less memory, a third more time.
    """

    learning_rate: float = 1e-3
    critic_learning_rate: float = 1e-3
    optimizer: Literal["adamw", "adamw_8bit", "muon", "sgd"] = "adamw"
    optimizer_dtype: Literal["", "float32", "bfloat16"] = ""
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
                raise ValueError(f"optimization.{name} is {getattr(self, name)}; it must be in [0, 1)")
        for name in ("warmup_steps", "max_grad_norm"):
            if getattr(self, name) < 0:
                raise ValueError(f"optimization.{name} is {getattr(self, name)}; it must be 0 or above")
        for name in ("epsilon", "weight_decay", "learning_rate", "critic_learning_rate"):
            if not 0 <= getattr(self, name) < MOST:
                raise ValueError(
                    f"optimization.{name} is {getattr(self, name)}; it must be a number from 0, below {MOST:g}"
                )
        if self.optimizer_dtype and self.optimizer != "adamw":
            raise ValueError(
                f"optimization.optimizer_dtype sets the type of AdamW's moments, but optimizer is {self.optimizer}: drop it"
            )
        if self.optimizer_dtype == "bfloat16" and self.beta2 > MOST_BETA2:
            raise ValueError(
                f"with beta2={self.beta2} the second moment would hardly change in bfloat16: use beta2={MOST_BETA2} or below, or "
                "optimizer_dtype=float32"
            )

    def of_policy(self) -> AbstractOptimizer:
        """The policy's optimiser."""
        adamw = self.adamw(self.learning_rate)
        rate, decay, norm = self.learning_rate, self.weight_decay, self.max_grad_norm
        match self.optimizer:
            case "adamw":
                return replace(adamw, dtype=self.optimizer_dtype)
            case "adamw_8bit":
                return AdamW8bit(
                    learning_rate=rate,
                    weight_decay=decay,
                    max_grad_norm=norm,
                    beta1=self.beta1,
                    beta2=self.beta2,
                    epsilon=self.epsilon,
                )
            case "muon":
                return Muon(learning_rate=rate, weight_decay=decay, max_grad_norm=norm, rest=adamw)
            case "sgd":
                return SGD(learning_rate=rate, weight_decay=decay, max_grad_norm=norm, momentum=self.beta1)

    def adamw(self, learning_rate: float) -> AdamW:
        """The optimiser of another model, that is moved at this rate."""
        return AdamW(
            learning_rate=learning_rate,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
        )

    def factor(self, step: int, total_steps: int) -> float:
        """Of all learning rates in this step: the warm-up, then the decay."""
        if step < self.warmup_steps:
            return (step + 1) / self.warmup_steps
        span = max(1, total_steps - self.warmup_steps)
        progress = min(1.0, (step - self.warmup_steps) / span)
        match self.decay:
            case "constant":
                return 1.0
            case "linear":
                return 1.0 - progress
            case "cosine":
                return 0.5 * (1.0 + math.cos(math.pi * progress))
