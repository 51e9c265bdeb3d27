"""One gradient step, blind to the family and to the method: it strings together whatever parts it is given.

prepare   anchor, reference and critic columns; reward shaping -> advantage -> shaping
step      for each minibatch: survey (masks, weights), forward_backward, optim_step; at the end version + 1
control   controllers move their coefficients by the step's metrics
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal import ops
from gimbal.controllers.base import State
from gimbal.critics.base import AbstractCritic
from gimbal.learning import preview
from gimbal.learning.method import AbstractMethod, Optimization
from gimbal.learning.proximal.base import Forward
from gimbal.learning.proximal.recompute import Recompute
from gimbal.learning.ranks import AbstractRanks, Alone, in_micro_batches
from gimbal.objectives.base import AbstractObjective
from gimbal.ops.paths import replace_at
from gimbal.policies.base import EVALUATED, AbstractPolicy
from gimbal.records import Group, Sampling, TrainBatch

Metrics = dict[str, float]
EVALUATED_AT = "evaluated_at"  # fact: the number of updates at which the anchor evaluated the row


class NotFinite(ValueError):
    """A loss or gradient was NaN or infinite; the weights have not moved."""


class Learner:
    """The policy being trained, its optimiser, and the number of steps taken (``version``).

    ``method`` is the recipe's learning half; ``total_steps`` is where a decaying learning rate ends; ``seed`` orders minibatches;
    ``ranks`` are the processes that share the work.
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
        ranks: AbstractRanks = Alone(),
    ) -> None:
        self.policy, self.critic, self.reference, self.ranks = policy, critic, reference, ranks
        self.sampling, self.total_steps, self.seed = sampling, total_steps, seed
        self.version = 0
        self.updates = 0  # moves of the weights by this object
        self._method = method
        self.control_state: dict[str, State] = {path: rule.init() for path, rule in method.controllers.items()}
        self.optimizer = _adamw(policy, critic, method.optimization)
        self.anchor = method.anchor.start(policy)
        self._anchor_seconds = 0.0  # of this process, since the last step
        self.reports: Metrics = {}  # of the advantages of the batch at hand
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
        batch, self.reports = batch.to(self.device), {}
        asked = needs_of(*method.reward_shaping, method.advantage, *method.shaping) & EVALUATED
        if self.critic is not None:
            asked |= self.critic.reads
        found = self._evaluated(self.policy, batch, asked) if asked else {}
        batch = batch.with_columns({name: found[name] for name in asked})

        def evaluate(rows: TrainBatch, policy: AbstractPolicy | None = None) -> Tensor:
            if policy is None and found:
                return found["logprob_NS"]
            return self._evaluated(policy or self.policy, rows)["logprob_NS"]

        with self._anchoring():
            columns = {"proximal_NS": self.anchor(batch, evaluate), **self.anchor.facts(batch, evaluate)}
        if isinstance(self.anchor, Recompute):
            columns[EVALUATED_AT] = torch.full((batch.shape[0],), self.updates, device=self.device)
        if "reference_NS" in needs:
            assert self.reference is not None, "the runtime gives a reference wherever a part needs reference_NS"
            columns["reference_NS"] = evaluate(batch, self.reference)
        if "score_norm_N" in needs:
            columns["score_norm_N"] = self._score_norm_N(batch)
        if self.critic is not None:
            columns |= self._in_micro_batches(batch, self.critic.columns)  # of the states before the update
        return self._advantages(batch.with_columns(columns), method)

    def arrived(self, group: Group) -> None:
        """A group begins to wait for its batch."""
        with self._anchoring():
            self.anchor.arrived(group, self._forward)

    def leaving(self, held: Callable[[], Sequence[Group]]) -> None:
        """The step is about to move the weights; ``held`` gives all that they and older ones drew for later steps."""

        def evaluate(rows: TrainBatch, policy: AbstractPolicy | None = None) -> Tensor:
            found = self._evaluated(policy or self.policy, rows.to(self.device))
            return found["logprob_NS"].to(rows.mask_NS.device)

        with self._anchoring():
            self.anchor.leaving(held, evaluate)

    def _advantages(self, batch: TrainBatch, method: AbstractMethod) -> TrainBatch:
        """Reward shapings, the estimator, the critic's target, shapings; what each reports of itself is kept for the metrics."""
        for reward_shape in method.reward_shaping:
            self.reports |= reward_shape.report(batch)
            batch = replace(batch, reward_NS=reward_shape(batch))
        self.reports |= method.advantage.report(batch)
        batch = replace(batch, advantage_NS=method.advantage(batch))
        if self.critic is not None:
            # Before any shaping: the critic predicts returns, not what the method makes of them.
            batch = replace(batch, target_NS=batch.column("advantage_NS", self) + batch.column("value_NS", self))
        for shape in method.shaping:
            self.reports |= shape.report(batch)
            batch = replace(batch, advantage_NS=shape(batch))
        return batch

    def step(self, batch: TrainBatch) -> Metrics:
        """Train on one prepared batch: ``epochs`` x ``minibatches`` updates, then version + 1."""
        optimization = self.method.optimization
        collected: dict[str, list[float]] = defaultdict(list)
        for epoch in range(optimization.epochs):
            for rows in self._minibatch_rows(batch, epoch):
                minibatch = batch.select(rows) if rows is not None else batch
                for facts in self.method.objective.stages(minibatch):
                    metrics = self.forward_backward(minibatch.with_columns(facts))
                    metrics |= self.optim_step(metrics)
                    with self._anchoring():
                        self.anchor.observe(self.policy, metrics)
                    for name, value in metrics.items():
                        collected[name].append(value)
        if self.critic is not None:
            self.critic.observe(batch)
        self.version += 1
        with self._anchoring():
            self.anchor.publish(self.policy, self.version)
        if self.reference is not None and self.version in self.method.reference_resets:
            self.reference.load_state_dict(self.policy.state_dict())
        averaged = {name: float(np.mean(values)) for name, values in collected.items()}
        cost = {"time/anchor": self._anchor_seconds, "anchor/bytes": float(self.anchor.nbytes())}
        self._anchor_seconds = 0.0
        return averaged | self.reports | cost | {"lr": self.learning_rate}

    def forward_backward(self, minibatch: TrainBatch) -> Metrics:
        """Add the gradient of the whole minibatch to the parameters' gradients; its size never depends on micro-batching."""
        method = self.method
        minibatch, metrics = self._survey(minibatch, method)
        whole = any(part.whole_groups for part in _losses(method))
        found: Metrics = defaultdict(float)
        for micro in self.ranks.micro_batches(minibatch, method.optimization.microbatch_tokens, whole_groups=whole):
            loss = self._micro_loss(micro, method, found)
            if not math.isfinite(value := self.ranks.total({"loss": loss.item()})["loss"]):
                self.optimizer.zero_grad(set_to_none=True)
                raise NotFinite(
                    f"the loss of step {self.version} is {value}; the weights have not moved. "
                    "Look at the largest log-ratio in metrics.jsonl; a lower learning rate or a correction usually mends it"
                )
            if loss.requires_grad:
                loss.backward()
        return dict(metrics) | self.ranks.total(found)

    def _survey(self, minibatch: TrainBatch, method: AbstractMethod) -> tuple[TrainBatch, Metrics]:
        """Everything that must be known of the whole minibatch before it is split: surveys, masks, corrections, weights."""
        metrics: Metrics = defaultdict(float)
        late = needs_of(*_losses(method), *method.masks)
        foreseen = not late.isdisjoint(preview.COLUMNS)
        if "current_NS" in late and late.isdisjoint(EVALUATED) and not foreseen and self._has_not_moved(minibatch):
            minibatch = replace(minibatch, current_NS=minibatch.proximal_NS)
        elif "current_NS" in late or foreseen:
            found = self._evaluated(self.policy, minibatch, late & EVALUATED | ({"hidden_NSH"} if foreseen else set()))
            found["current_NS"] = found.pop("logprob_NS")
            minibatch = minibatch.with_columns(found)
        if foreseen:
            hidden_NSH = minibatch.column("hidden_NSH", self)
            minibatch = minibatch.with_columns(
                preview.preview(self.policy, self.optimizer, minibatch, hidden_NSH, self.sampling.temperature)
            )
        for part in _losses(method):
            minibatch = minibatch.with_columns(part.survey(minibatch))
        keep_NS = torch.ones_like(minibatch.mask_NS)
        for mask in method.masks:
            kept_NS = mask(minibatch)
            metrics[f"mask/{type(mask).__name__}"] = float(ops.masked_mean(kept_NS, minibatch.mask_NS))
            if mask.renormalise:
                minibatch = replace(minibatch, mask_NS=minibatch.mask_NS & kept_NS)
            keep_NS &= kept_NS
        # Regularisers are not corrected: they hold for every decision, however it was sampled.
        correction_NS = keep_NS.float() if method.correction is None else keep_NS * method.correction(minibatch)
        facts = {"correction": correction_NS}
        for number, part in enumerate(_losses(method)):
            counted_NS = part.counted(minibatch)
            facts[f"weight/{number}"] = method.aggregation(counted_NS, minibatch.part_NS)
            facts[f"share/{number}"] = ops.TokenMean()(counted_NS)
        return minibatch.with_columns(facts), metrics

    def _micro_loss(self, micro: TrainBatch, method: AbstractMethod, metrics: Metrics) -> Float[Tensor, ""]:
        needs = needs_of(*_losses(method))
        valued = self.critic is not None and bool({"values_NS", "values_NSM"} & needs)
        reads = self.critic.reads if self.critic is not None and valued else frozenset()
        decisions = micro.decisions
        assert decisions is not None
        evaluation = self.policy.evaluate(
            decisions,
            temperature=self.sampling.temperature,
            columns=(needs & EVALUATED) | reads,
            checkpointing=method.optimization.checkpointing,
        )
        micro = micro.with_columns(evaluation.columns)
        if "values_NS" in needs:
            assert self.critic is not None, "compose.check refuses a value loss without a critic"
            micro = replace(micro, values_NS=self.critic.value(decisions, micro.hidden_NSH)[0])
        if "values_NSM" in needs:
            assert self.critic is not None, "compose.check refuses a value loss without a critic"
            micro = replace(micro, values_NSM=self.critic.members(decisions, micro.hidden_NSH)[0])
        loss = self.ranks.nothing(evaluation.logprob_NS)
        for number, part in enumerate(_losses(method)):
            terms = part(evaluation.logprob_NS, micro)
            weight_NS, share_NS = micro.facts[f"weight/{number}"], micro.facts[f"share/{number}"]
            if number == 0:
                weight_NS = weight_NS * micro.facts["correction"]
            term = ops.masked_sum(weight_NS * terms.loss_NS, share_NS > 0)
            loss = loss + term
            if number == 0:
                metrics["loss"] += float(term.detach())
                if micro.proximal_NS is not None:  # how far the policy is from its anchor as this update begins
                    apart_NS = evaluation.logprob_NS.detach() - micro.column("proximal_NS", self)
                    metrics["cause/update"] += float(ops.masked_sum(share_NS * apart_NS, share_NS > 0))
                metrics["live_frac"] += float((share_NS * _reached(term, evaluation.logprob_NS)).sum())
                if micro.advantage_NS is not None:
                    metrics["signal_frac"] += float((share_NS * (micro.advantage_NS != 0)).sum())
            for name, value_NS in terms.metrics.items():
                metrics[name] += float(ops.masked_sum(share_NS * value_NS.detach(), share_NS > 0))
        return loss

    def optim_step(self, metrics: Mapping[str, float] | None = None) -> Metrics:
        """Clip, move, forget the gradient. Refuses a gradient that is not finite before anything moves.

        ``metrics`` of the minibatch are what a step size goes by.
        """
        method, optimization = self.method, self.method.optimization
        norm = self.ranks.clip(self.policy, optimization.max_grad_norm)
        if self.critic is not None:
            self.ranks.clip(self.critic, optimization.max_grad_norm)
        if not math.isfinite(norm):
            self.optimizer.zero_grad(set_to_none=True)
            raise NotFinite(f"the gradient norm of step {self.version} is {norm}; the weights have not moved")
        factor = self._schedule(optimization)
        if method.step_size is not None:
            factor *= method.step_size(metrics or {})
        rates = (optimization.learning_rate, optimization.critic_learning_rate)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=False):
            group["lr"] = rate * factor
        self.optimizer.step()
        self.updates += 1
        self.optimizer.zero_grad(set_to_none=True)
        return {"grad_norm": norm}

    def control(self, metrics: Mapping[str, float]) -> Metrics:
        """Move the controlled coefficients by the metrics of the step just taken; returns their new values."""
        for path, rule in self._method.controllers.items():
            self.control_state[path] = rule.update(self.control_state[path], metrics)
        return {f"control/{path}": state["value"] for path, state in self.control_state.items()}

    def close(self) -> None:
        """Let other processes end, if there are any."""
        self.anchor.close()

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

    def _has_not_moved(self, minibatch: TrainBatch) -> bool:
        """Whether the anchor is the present policy: the first update on a batch."""
        at_N = minibatch.facts.get(EVALUATED_AT)
        return at_N is not None and bool((at_N == self.updates).all())

    def _minibatch_rows(self, batch: TrainBatch, epoch: int) -> list[Tensor] | list[None]:
        """Whole groups where there are enough of them, so that what shares a prompt or is compared stays together."""
        count = min(self.method.optimization.minibatches, batch.shape[0])
        if count == 1:
            return [None]
        label_N = torch.arange(batch.shape[0])
        if batch.group_N is not None and len(batch.group_N.unique()) >= count:
            label_N = batch.group_N.unique(return_inverse=True)[1].cpu()
        order = ops.philox(self.seed, "minibatches", self.version, epoch).permutation(int(label_N.max()) + 1)
        return [torch.isin(label_N, torch.from_numpy(part)).nonzero()[:, 0] for part in np.array_split(order, count)]

    def _evaluated(self, policy: AbstractPolicy, batch: TrainBatch, columns: Collection[str] = ()) -> dict[str, Tensor]:
        """``logprob_NS`` and the columns asked for, without gradient."""
        return self._in_micro_batches(batch, self._forward.columns_of(policy, columns))

    def _in_micro_batches(
        self, batch: TrainBatch, columns_of: Callable[[TrainBatch], Mapping[str, Tensor]]
    ) -> dict[str, Tensor]:
        return in_micro_batches(self.ranks, batch, self.method.optimization.microbatch_tokens, columns_of)

    @property
    def _forward(self) -> Forward:
        return Forward(temperature=self.sampling.temperature, tokens=self.method.optimization.microbatch_tokens)

    @contextmanager
    def _anchoring(self) -> Iterator[None]:
        """What is done within it counts as the anchor's time."""
        start = time.perf_counter()
        yield
        self._anchor_seconds += time.perf_counter() - start

    def _score_norm_N(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        """|grad sum_t log pi| of each row, over all parameters: one backward pass a row."""
        weights = [p for p in self.policy.parameters() if p.requires_grad]
        norms = []
        for row in torch.arange(batch.shape[0]).split(1):
            one = batch.select(row)
            assert one.decisions is not None
            logprob_NS = self.policy.evaluate(one.decisions, temperature=self.sampling.temperature).logprob_NS
            gradient = torch.autograd.grad(ops.masked_sum(logprob_NS, one.mask_NS), weights, allow_unused=True)
            norms.append(torch.stack([g.square().sum() for g in gradient if g is not None]).sum().sqrt())
        return torch.stack(norms).float()

    def save_state(self) -> dict[str, Any]:
        """Everything but the recipe and the policy's weights, which the policy saves itself: see ``load_state``."""
        return {
            "version": self.version,
            "critic": None if self.critic is None else self.critic.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "control": {path: dict(state) for path, state in self.control_state.items()},
            "anchor": self.anchor.state_dict(),
            "reference": self._reference_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``save_state``, with a policy that was loaded from where it was saved at the same time."""
        self.version = state["version"]
        if self.critic is not None:
            self.critic.load_state_dict(state["critic"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.control_state = dict(state["control"])
        self.anchor.load_state_dict(state["anchor"])
        if self.reference is not None and state.get("reference") is not None:
            self.reference.load_state_dict(state["reference"])

    def _reference_state(self) -> dict[str, Any] | None:
        """A reference that was never reset is the first policy, which the run makes anew."""
        if self.reference is None or not any(at <= self.version for at in self.method.reference_resets):
            return None
        return {name: x.clone() for name, x in self.reference.state_dict().items()}


def column_needs(method: AbstractMethod) -> frozenset[str]:
    """The optional columns that some part of the method reads."""
    parts: list[Any] = [*_losses(method), method.advantage, *method.shaping, *method.reward_shaping, *method.masks]
    if method.correction is not None:
        parts.append(method.correction)
    # The anchor is always there: it is what the discrepancy is measured against.
    return needs_of(*parts) | {"proximal_NS"}


def needs_of(*parts: Any) -> frozenset[str]:
    """The union of what these parts read."""
    return frozenset().union(*(part.needs for part in parts))


def _reached(loss: Tensor, logprob_NS: Float[Tensor, "N S"]) -> Bool[Tensor, "N S"]:
    """Decisions that the loss moves: those that clip, mask and correction left a gradient."""
    if not loss.requires_grad:
        return torch.zeros_like(logprob_NS, dtype=torch.bool)
    (gradient_NS,) = torch.autograd.grad(loss, logprob_NS, retain_graph=True, materialize_grads=True)
    return gradient_NS != 0


def _losses(method: AbstractMethod) -> tuple[AbstractObjective, ...]:
    """The objective, which is corrected and masked, and the regularisers, which are not."""
    return method.objective, *method.regularisers


def _adamw(policy: AbstractPolicy, critic: AbstractCritic | None, o: Optimization) -> torch.optim.AdamW:
    groups: list[dict[str, Any]] = [
        {"params": [p for p in policy.parameters() if p.requires_grad], "lr": o.learning_rate}
    ]
    if critic is not None:
        groups.append({"params": list(critic.parameters()), "lr": o.critic_learning_rate})
    return torch.optim.AdamW(groups, betas=(o.beta1, o.beta2), eps=o.epsilon, weight_decay=o.weight_decay, fused=True)
