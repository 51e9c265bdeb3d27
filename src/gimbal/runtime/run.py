"""A run: every part of an experiment, chosen and configured. Recipes return one; it is saved with the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.controllers.base import AbstractController
from gimbal.critics.base import AbstractCriticSpec
from gimbal.dataflow.base import AbstractFilter
from gimbal.engines.base import AbstractEngineSpec
from gimbal.environments.base import AbstractTasks
from gimbal.learning.proximal.base import AbstractAnchor
from gimbal.learning.proximal.recompute import Recompute
from gimbal.objectives.base import AbstractCorrection, AbstractObjective
from gimbal.ops import AbstractAggregation, TokenMean
from gimbal.policies.base import AbstractPolicySpec
from gimbal.records import Sampling
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """How one step moves the weights: AdamW, clipped gradients, ``epochs`` passes over the batch in ``minibatches`` updates each.

    ``learning_rate`` is reached linearly after ``warmup_steps`` updates, then constant, or decays to 0 at the run's end.
    ``microbatch_tokens`` bounds the positions of one forward pass; it changes memory and speed, never the gradient.
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
        if self.learning_rate < 0:
            raise ValueError(f"optimization.learning_rate is {self.learning_rate}; it must be 0 or above")


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """The exam: tasks with seeds of their own, sampled as in training (pass@1, pass@k) and greedily, before and after the run.

    ``every`` > 0 repeats the sampled part every so many steps.
    """

    tasks: AbstractTasks
    samples: int = 4
    every: int = 0


@dataclass(frozen=True, kw_only=True)
class Run:
    """The whole of an experiment. One learner step trains on ``prompts_per_step`` groups of ``num_generations`` rollouts.

    ``max_staleness`` = k: no decision older than k learner versions is ever trained on; 0 is the synchronous run.
    ``ahead``: "ready" lets the learner step as soon as a batch is there; "full" first generates as far ahead as k admits, so that
    data of age exactly k is trained on once the pipeline is full (what a learner much slower than its samplers sees).
    """

    # Who acts, and where.
    policy: AbstractPolicySpec
    engine: AbstractEngineSpec
    tasks: AbstractTasks
    held_out: HeldOut | None = None
    sampling: Sampling = Sampling()

    # What may be learned from.
    rewards: tuple[AbstractReward, ...] = ()
    filters: tuple[AbstractFilter, ...] = ()
    prompts_per_step: int = 16
    num_generations: int = 8
    max_staleness: int = 1
    ahead: Literal["ready", "full"] = "ready"
    max_empty_batches: int = 10  # batches' worth of groups dropped in a row before the run stops with advice

    # How.
    reward_shaping: tuple[AbstractRewardShaping, ...] = ()
    advantage: AbstractAdvantage
    shaping: tuple[AbstractAdvantage, ...] = ()
    objective: AbstractObjective
    correction: AbstractCorrection | None = None
    regularisers: tuple[AbstractObjective, ...] = ()
    aggregation: AbstractAggregation = TokenMean()
    anchor: AbstractAnchor = Recompute()
    critic: AbstractCriticSpec | None = None
    controllers: Mapping[str, AbstractController] = field(default_factory=dict)
    optimization: Optimization = Optimization()

    # The run itself.
    steps: int = 50
    seed: int = 0
    threads: int = 0  # of torch; 0 chooses
    checkpoint_every: int = 25
    keep_checkpoints: int = 2
    record_every: int = 10  # steps between samples of rollouts written to disk

    def __post_init__(self) -> None:
        if self.num_generations < 1 or self.prompts_per_step < 1:
            raise ValueError("prompts_per_step and num_generations are counts of at least 1")
        if self.max_staleness < 0:
            raise ValueError(f"max_staleness is {self.max_staleness}; it counts learner versions, 0 being synchronous")
        if self.steps < 0:
            raise ValueError(f"steps is {self.steps}; it must be 0 or above")
