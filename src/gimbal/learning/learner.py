"""One gradient step, blind to the family and to the method: it strings together whatever parts it is given.

prepare   anchor, reference and critic columns; reward shaping -> advantage -> shaping
step      for each minibatch: forward_backward, optim_step; at the end version + 1
control   controllers move their coefficients by the step's metrics
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.controllers.base import State
from gimbal.critics.base import AbstractCritic
from gimbal.dataflow.packing import micro_batches
from gimbal.learning.method import AbstractMethod, Optimization
from gimbal.ops.paths import replace_at
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Sampling, TrainBatch

Metrics = dict[str, float]


class NotFinite(ValueError):
    """A loss or gradient was NaN or infinite; the weights have not moved."""


class Learner:
    """The policy being trained, its optimiser, and the number of steps taken (``version``).

    ``method`` is the recipe's learning half; ``total_steps`` is where a decaying learning rate ends; ``seed`` orders minibatches.
    """

    def __init__(
        self,
        policy: AbstractPolicy,
        method: AbstractMethod,
        *,
        sampling: Sampling = Sampling(),
        critic: AbstractCritic | None = None,
        reference: AbstractPolicy | None = None,
        total_steps: int = 0,
        seed: int = 0,
    ) -> None:
        self.policy, self.critic, self.reference = policy, critic, reference
        self.sampling, self.total_steps, self.seed = sampling, total_steps, seed
        self.version = 0
        self._method = method
        self.control_state: dict[str, State] = {path: rule.init() for path, rule in method.controllers.items()}
        self.optimizer = _adamw(policy, critic, method.optimization)
        self.device = next(policy.parameters()).device

    @property
    def method(self) -> AbstractMethod:
        """The method with the controllers' present values in place."""
        method = self._method
        for path, state in self.control_state.items():
            method = replace_at(method, path, state["value"])
        return method

    def prepare(self, batch: TrainBatch) -> TrainBatch:
        """The batch with the columns its method needs: anchor, reference, values, rewards as shaped, advantages."""
        method, needs = self.method, column_needs(self.method)
        batch = batch.to(self.device)
        if "proximal_NS" in needs:
            batch = replace(batch, proximal_NS=method.anchor(batch, lambda b: self._logprob_NS(self.policy, b)))
        if "reference_NS" in needs:
            assert self.reference is not None, "the runtime gives a reference wherever a part needs reference_NS"
            batch = replace(batch, reference_NS=self._logprob_NS(self.reference, batch))
        if self.critic is not None:
            assert batch.decisions is not None
            with torch.no_grad():
                value_NS, bootstrap_N = self.critic.value(batch.decisions)
            batch = replace(batch, value_NS=value_NS, bootstrap_N=bootstrap_N)
        for shape in method.reward_shaping:
            batch = replace(batch, reward_NS=shape(batch))
        batch = replace(batch, advantage_NS=method.advantage(batch))
        if self.critic is not None:
            # Before any shaping: the critic predicts returns, not what the method makes of them.
            batch = replace(batch, target_NS=batch.column("advantage_NS", self) + batch.column("value_NS", self))
        for shape in method.shaping:
            batch = replace(batch, advantage_NS=shape(batch))
        return batch

    def step(self, batch: TrainBatch) -> Metrics:
        """Train on one prepared batch: ``epochs`` x ``minibatches`` updates, then version + 1."""
        optimization = self.method.optimization
        collected: dict[str, list[float]] = defaultdict(list)
        for epoch in range(optimization.epochs):
            for rows in self._minibatch_rows(batch, epoch):
                metrics = self.forward_backward(batch.select(rows) if rows is not None else batch)
                metrics |= self.optim_step()
                for name, value in metrics.items():
                    collected[name].append(value)
        self.version += 1
        return {name: float(np.mean(values)) for name, values in collected.items()} | {"lr": self.learning_rate}

    def forward_backward(self, minibatch: TrainBatch) -> Metrics:
        """Add the gradient of the whole minibatch to the parameters' gradients; its size never depends on micro-batching."""
        method = self.method
        weight_NS = method.aggregation(minibatch.mask_NS)
        # Regularisers are not corrected: they hold for every decision, however it was sampled.
        correction_NS = torch.ones_like(weight_NS) if method.correction is None else method.correction(minibatch)
        share_NS = ops.TokenMean()(minibatch.mask_NS)
        minibatch = replace(minibatch, weight_NS=weight_NS, correction_NS=correction_NS, share_NS=share_NS)
        metrics: Metrics = defaultdict(float)
        for micro in micro_batches(minibatch, method.optimization.microbatch_tokens):
            loss = self._micro_loss(micro, method, metrics)
            if not math.isfinite(value := loss.item()):
                self.optimizer.zero_grad(set_to_none=True)
                raise NotFinite(
                    f"the loss of step {self.version} is {value}; the weights have not moved. "
                    "Look at the largest log-ratio in metrics.jsonl; a lower learning rate or a correction usually mends it"
                )
            loss.backward()
        return dict(metrics)

    def _micro_loss(self, micro: TrainBatch, method: AbstractMethod, metrics: Metrics) -> Float[Tensor, ""]:
        needs = column_needs(method)
        assert micro.decisions is not None
        evaluation = self.policy.evaluate(
            micro.decisions,
            temperature=self.sampling.temperature,
            entropy="entropy_NS" in needs,
            checkpointing=method.optimization.checkpointing,
        )
        if evaluation.entropy_NS is not None:
            micro = replace(micro, entropy_NS=evaluation.entropy_NS)
        if "values_NS" in needs:
            assert self.critic is not None, "compose.check refuses a value loss without a critic"
            micro = replace(micro, values_NS=self.critic.value(micro.decisions)[0])
        weight_NS, correction_NS = micro.column("weight_NS", self), micro.column("correction_NS", self)
        terms = method.objective(evaluation.logprob_NS, micro)
        loss = ops.masked_sum(weight_NS * correction_NS * terms.loss_NS, micro.mask_NS)
        metrics["loss"] += float(loss.detach())
        logged = dict(terms.metrics)
        for regulariser in method.regularisers:
            terms = regulariser(evaluation.logprob_NS, micro)
            loss = loss + ops.masked_sum(weight_NS * terms.loss_NS, micro.mask_NS)
            logged |= terms.metrics
        for name, value_NS in logged.items():
            metrics[name] += float(ops.masked_sum(micro.column("share_NS", self) * value_NS.detach(), micro.mask_NS))
        return loss

    def optim_step(self) -> Metrics:
        """Clip, move, forget the gradient. Refuses a gradient that is not finite before anything moves."""
        optimization = self.method.optimization
        norm = float(torch.nn.utils.clip_grad_norm_(self.policy.parameters(), optimization.max_grad_norm))
        if self.critic is not None:
            torch.nn.utils.clip_grad_norm_(self.critic.parameters(), optimization.max_grad_norm)
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFinite(f"the gradient norm of step {self.version} is {norm}; the weights have not moved")
        factor = self._schedule(optimization)
        rates = (optimization.learning_rate, optimization.critic_learning_rate)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            group["lr"] = rate * factor
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return {"grad_norm": norm}

    def control(self, metrics: Mapping[str, float]) -> Metrics:
        """Move the controlled coefficients by the metrics of the step just taken; returns their new values."""
        for path, rule in self._method.controllers.items():
            self.control_state[path] = rule.update(self.control_state[path], metrics)
        return {f"control/{path}": state["value"] for path, state in self.control_state.items()}

    @property
    def learning_rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def _schedule(self, optimization: Optimization) -> float:
        if self.version < optimization.warmup_steps:
            return (self.version + 1) / optimization.warmup_steps
        span = max(1, self.total_steps - optimization.warmup_steps)
        progress = min(1.0, (self.version - optimization.warmup_steps) / span)
        match optimization.decay:
            case "constant":
                return 1.0
            case "linear":
                return 1.0 - progress
            case "cosine":
                return 0.5 * (1.0 + math.cos(math.pi * progress))

    def _minibatch_rows(self, batch: TrainBatch, epoch: int) -> list[Tensor] | list[None]:
        count = min(self.method.optimization.minibatches, batch.shape[0])
        if count == 1:
            return [None]
        order = ops.philox(self.seed, "minibatches", self.version, epoch).permutation(batch.shape[0])
        return [torch.from_numpy(np.sort(rows)) for rows in np.array_split(order, count)]

    def _logprob_NS(self, policy: AbstractPolicy, batch: TrainBatch) -> Float[Tensor, "N S"]:
        """Log-probabilities without gradient, in micro-batches, back in the order of the rows."""
        logprob_NS = torch.zeros(batch.shape, device=self.device)
        numbered = replace(batch, row_N=torch.arange(batch.shape[0], device=self.device))
        with torch.no_grad():
            for micro in micro_batches(numbered, self.method.optimization.microbatch_tokens):
                assert micro.decisions is not None
                evaluated = policy.evaluate(micro.decisions, temperature=self.sampling.temperature)
                logprob_NS[micro.column("row_N", self), : micro.shape[1]] = evaluated.logprob_NS.float()
        return logprob_NS

    def save_state(self) -> dict[str, Any]:
        """Everything but the recipe and the policy's weights, which the policy saves itself: see ``load_state``."""
        return {
            "version": self.version,
            "critic": None if self.critic is None else self.critic.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "control": {path: dict(state) for path, state in self.control_state.items()},
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``save_state``, with a policy that was loaded from where it was saved at the same time."""
        self.version = state["version"]
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.control_state = dict(state["control"])


def column_needs(method: AbstractMethod) -> frozenset[str]:
    """The optional columns that some part of the method reads."""
    parts: list[Any] = [
        method.objective,
        method.advantage,
        *method.regularisers,
        *method.shaping,
        *method.reward_shaping,
    ]
    if method.correction is not None:
        parts.append(method.correction)
    # The anchor is always there: it is what the discrepancy is measured against.
    return frozenset({"proximal_NS"}).union(*(part.needs for part in parts))


def _adamw(policy: AbstractPolicy, critic: AbstractCritic | None, o: Optimization) -> torch.optim.AdamW:
    groups: list[dict[str, Any]] = [
        {"params": [p for p in policy.parameters() if p.requires_grad], "lr": o.learning_rate}
    ]
    if critic is not None:
        groups.append({"params": list(critic.parameters()), "lr": o.critic_learning_rate})
    return torch.optim.AdamW(groups, betas=(o.beta1, o.beta2), eps=o.epsilon, weight_decay=o.weight_decay, fused=True)
