"""One learner step, independent of family and method: the update defines what learns from what.

prepare   the update's columns, before anything moves
step      for each minibatch: survey, and for each loss backward, clip, move; at the end version + 1
control   controllers move their coefficients by the step's metrics
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal import ops
from gimbal.composition import AbstractRemembering
from gimbal.controllers.base import AbstractController, State
from gimbal.dataflow.replay.transitions import parted, split
from gimbal.learning.base import AbstractLocalLearner, AbstractTrained, OfPolicy
from gimbal.learning.loop import UNDONE, Loop
from gimbal.learning.ranks import AbstractRanks, SingleProcess
from gimbal.learning.updates.base import (
    BROKEN,
    POLICY,
    AbstractUpdate,
    Loss,
    Metrics,
    NotFinite,
    NotFiniteAdvantage,
    Signals,
    Unmeasured,
    assembled,
    memories,
)
from gimbal.learning.updates.yielded import accepted, begun, moves_the_policy, without_gradient
from gimbal.nested import get_at, replace_at
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Group, TrainBatch


class Learner(AbstractLocalLearner):
    """The policy being trained, the other models of its update, and the number of steps taken (``version``).

    ``update`` says what learns from what; a policy-gradient run is one itself. ``models`` are those it cannot or should not make, by
    name (``critic=...``, ``reference=...``), and ``separate`` those of roles with weights of their own; ``first`` makes the initial
    policy of the run. ``temperature`` is the sampling temperature. ``total_steps`` is where a decaying learning rate ends; ``seed``
    orders minibatches; ``ranks`` are the processes that share the work. ``begins`` are another run's weights that models start from,
    by name; None: the run is resumed, and ``load_state`` follows.
    """

    def __init__(
        self,
        policy: AbstractPolicy,
        update: AbstractUpdate,
        *,
        temperature: float = 1.0,
        total_steps: int = 0,
        seed: int = 0,
        ranks: AbstractRanks = SingleProcess(),
        first: Callable[[], nn.Module] | None = None,
        separate: Mapping[str, AbstractPolicy] | None = None,
        begins: Mapping[str, Mapping[str, Tensor]] | None = {},
        **models: nn.Module | None,
    ) -> None:
        self.policy, self.ranks = policy, ranks
        self.total_steps, self.seed = total_steps, seed
        self._update = update
        self.control_state: dict[str, State] = {path: rule.init() for path, rule in update.controllers.items()}
        self.memories = memories(update)
        moves_the_policy(update)
        given = {**models, **(separate or {}), POLICY: policy}
        self.models = assembled(self.update, given, first=first, temperature=temperature, ranks=ranks, seed=seed)
        self.models.parts |= self.memories  # saved and resumed like the parts' other state
        self.loop = None if update.stability is None else Loop(update.stability, self.models)
        self.reports: Metrics = {}  # metrics of the current batch from its preparation
        if begins is not None:
            self.models.begin(begins)
            update.begun(self.models)

    @property
    def version(self) -> int:
        return self.models.version

    @property
    def separate(self) -> Mapping[str, AbstractTrained]:
        return {name: OfPolicy(self.models[name]) for name in dict.fromkeys(self.models.owners.values())}

    @property
    def update(self) -> AbstractUpdate:
        """The update with the controllers' current values and its parts' remembered state in place."""
        update = self._update
        for path, state in self.control_state.items():
            update = replace_at(update, path, state["value"])
        for path, memory in self.memories.items():
            update = replace_at(update, path, get_at(update, path).recalling(memory.state))
        return update

    def prepare(self, batch: TrainBatch) -> TrainBatch:
        """The batch with the columns that its update needs (policy gradient: anchor, reference, values, shaped rewards, advantages)."""
        batch, self.reports = self.update.prepare(self.models, batch.to(self.models.device))
        return batch

    def arrived(self, group: Group) -> None:
        """A group starts waiting for its batch."""
        self.update.arrived(self.models, group)

    def before_update(self, held: Callable[[], Sequence[Group]]) -> None:
        """The step is about to move the weights; ``held`` gives everything that they and older ones sampled for later steps."""
        self.update.before_update(self.models, held)

    def step(self, batch: TrainBatch) -> Metrics:
        """Train on one prepared batch: ``epochs`` x ``minibatches`` passes of the update's losses, then version + 1."""
        update = self.update
        if self.loop is None or update.stability is None:
            metrics = self._passes(batch)
        else:
            self.loop.rule = update.stability  # which controllers may move
            metrics = self.loop.step(batch, lambda: self._passes(batch))
            if "loop/attempted" not in metrics:  # a step that was not finite set no rate
                optimization = update.optimization
                scheduled = optimization.learning_rate * optimization.factor(self.version, self.total_steps)
                for group in self.models.optimizers[POLICY].param_groups:
                    group["lr"] = scheduled * metrics["loop/factor"]
        self.models.version += 1
        ended = update.stepped(self.models, batch)
        times = {f"time/{name}": seconds for name, seconds in self.models.seconds.items()}
        self.models.seconds.clear()
        own = {f"lr/{name}": self.models.optimizers[name].param_groups[0]["lr"] for name in self.separate}
        return metrics | self.reports | ended | times | {"lr": self.learning_rate} | own

    def errors(self, batch: TrainBatch) -> Float[Tensor, " N"]:
        return self.update.errors(self.models, batch)

    def _passes(self, batch: TrainBatch) -> Metrics:
        """All updates of the weights on one batch; returns the mean of each metric over them."""
        update = self.update
        collected: dict[str, list[float]] = defaultdict(list)
        for epoch in range(update.optimization.epochs):
            for minibatch in self._minibatches(batch, epoch):
                for facts in update.stages(minibatch):
                    metrics: Metrics = {}
                    for loss in self._backward(minibatch.with_columns(facts)):
                        metrics |= loss.metrics
                        metrics |= self._move(loss.of, metrics)
                        update.moved(self.models, metrics)
                    for name, value in metrics.items():
                        collected[name].append(value)
        return {name: float(np.mean(values)) for name, values in collected.items()}

    def forward_backward(self, minibatch: TrainBatch) -> Metrics:
        """Add the gradient of the whole minibatch to the parameters' gradients; its size never depends on micro-batching.

        Of an update with several losses it is the first one's: the others are computed from what the first has moved.
        """
        return dict(next(self._backward(minibatch)).metrics)

    def optim_step(self, metrics: Mapping[str, float] | None = None) -> Metrics:
        """Clip, move, forget the gradient. Refuses a gradient that is not finite before anything moves.

        A step size reads the minibatch's ``metrics``.
        """
        if self.loop is not None:
            raise ValueError(
                "optim_step is one move, but Stability measures and scales back whole steps: call learner.step(batch), or leave "
                "stability=None"
            )
        return self._move(tuple(self.models.optimizers), metrics or {})

    def _backward(self, minibatch: TrainBatch) -> Iterator[Loss]:
        """Each loss of the minibatch once its gradient is computed; the caller takes the optimiser step before it asks for the next."""
        update, models = self.update, self.models
        minibatch, surveyed = update.survey(models, minibatch)
        tokens, whole = update.optimization.microbatch_tokens, update.whole_groups()
        micros = self.ranks.micro_batches(minibatch, tokens, policy=models.policy, whole_groups=whole)
        # In lockstep: the second losses of all micro-batches make the second optimiser step.
        under_way = [begun(update, models, micro) for micro in micros]
        while True:
            found: Metrics = defaultdict(float)
            loss = None
            for losses in under_way:
                if (loss := next(losses, None)) is None:
                    return
                self._descend(accepted(update, models, loss))
                for name, value in loss.metrics.items():
                    found[name] += value
            assert loss is not None, "a minibatch has at least one micro-batch"
            yield Loss(of=loss.of, value=loss.value.detach(), metrics=surveyed | self.ranks.total(found))

    def _descend(self, loss: Loss) -> None:
        """Add its gradient to its models' gradients."""
        own = loss.value.item()  # read once, because each read waits for the accelerator
        if not math.isfinite(value := self.ranks.total({"loss": own})["loss"]):
            self._forget()
            if parts := [name.removeprefix(BROKEN) for name in self.reports if name.startswith(BROKEN)]:
                raise NotFiniteAdvantage(
                    f"the advantages of step {self.version + 1} are not finite after {parts[0]}: see what it divides by, and takes the "
                    "logarithm of; the update was not applied"
                )
            raise NotFinite(
                f"the loss of step {self.version + 1} is {value}; the update was not applied. "
                "Look at the largest log-ratio in metrics.jsonl; a lower learning rate or a correction usually fixes it"
            )
        trained = self.models.trained(loss.of)
        if loss.value.requires_grad:
            # Models that the loss only passes through get no gradient, and none is computed for them.
            others = set(self.models.optimizers) - set(loss.of)
            loss.value.backward(inputs=trained if others else None)
        # A loss of 0 may be of decisions that do not count. Any other that reaches no weight would never train anything.
        if own != 0 and all(weight.grad is None for weight in trained):
            raise without_gradient(self._update, loss)

    def _move(self, names: Sequence[str], metrics: Mapping[str, float]) -> Metrics:
        update, models = self.update, self.models
        # Created again only if a controller may have changed one of their settings.
        specs = models.specs if update is self._update else update.models()
        chosen = {name: specs[name].optimizer for name in names}
        norms: dict[str, float] = {}
        for name, optimizer in chosen.items():
            assert optimizer is not None  # accepted() refused the loss
            norms[name] = self.ranks.clip(models[name], optimizer.max_grad_norm)
            if not math.isfinite(norms[name]):
                self._forget()
                raise NotFinite(
                    f"the gradient norm of step {self.version + 1} is {norms[name]} ({name}); the update was not applied"
                )
        factor = update.optimization.factor(self.version, self.total_steps) * update.step_factor(metrics)
        for name, optimizer in chosen.items():
            assert optimizer is not None
            own = factor
            if self.loop is not None and name == POLICY:
                own = factor * self.loop.factor
                self.loop.schedules.append(factor)
            groups = models.optimizers[name].param_groups
            for group in groups:
                group["lr"] = optimizer.learning_rate * own
            models.optimizers[name].step()
            # zero_grad takes as long as small steps.
            for weight in (weight for group in groups for weight in group["params"]):
                weight.grad = None
        models.updates += 1
        models.follow(names)
        told = [names[0], *(name for name in names[1:] if name in models.owners.values())]
        return {"grad_norm" if name == POLICY else f"grad_norm/{name}": norms[name] for name in told}

    def _forget(self) -> None:
        for optimizer in self.models.optimizers.values():
            optimizer.zero_grad(set_to_none=True)

    def control(self, metrics: Mapping[str, float]) -> Metrics:
        """Let parts remember the step just taken, and controllers move their coefficients by it; returns what both are at now."""
        update = self.update
        for path, memory in self.memories.items():
            memory.state = self._after(path, get_at(update, path), memory.state, metrics)
        for path, rule in self._update.controllers.items():
            self.control_state[path] = self._after(f"controllers.{path}", rule, self.control_state[path], metrics)
        told = {f"control/{path}": state["value"] for path, state in self.control_state.items()}
        for path, memory in self.memories.items():
            told |= {f"memory/{path}.{name}": number for name, number in memory.state.items()}
        return told if self.loop is None else told | self.loop.control(metrics)

    def _after(
        self, path: str, rule: AbstractController | AbstractRemembering, state: State, metrics: Mapping[str, float]
    ) -> State:
        """A rule's state after the step; unchanged if a metric is missing because the closed loop undid the step."""
        try:
            return rule.update(state, Signals(metrics))
        except Unmeasured as error:
            if UNDONE & metrics.keys():
                return state
            raise ValueError(
                f"{path} is {type(rule).__name__}, which goes by {error.args[0]!r}, and step {self.version} did not measure it: "
                "use the part that reports it, or go by another figure (docs/metrics.md)"
            ) from error

    def close(self) -> None:
        """Let other processes end, if there are any."""
        self._update.close(self.models)

    @property
    def learning_rate(self) -> float:
        return self.models.optimizers[POLICY].param_groups[0]["lr"]

    def _minibatches(self, batch: TrainBatch, epoch: int) -> Iterator[TrainBatch]:
        if (counts := self.update.moves(batch)) is not None:
            yield from split(batch, counts) if counts else ()
            return
        count = min(self.update.optimization.minibatches, batch.shape[0])
        yield from [batch] if count == 1 else parted(batch, self._minibatch_rows(batch, epoch, count))

    def _minibatch_rows(self, batch: TrainBatch, epoch: int, count: int) -> Sequence[Tensor]:
        """Rows of each minibatch: whole groups if there are enough, so that rows that share a prompt or are compared stay together."""
        label_N = torch.arange(batch.shape[0])
        if batch.group_N is not None and len(batch.group_N.unique()) >= count:
            label_N = batch.group_N.unique(return_inverse=True)[1].cpu()
        order = ops.philox(self.seed, "minibatches", self.version, epoch).permutation(int(label_N.max()) + 1)
        # A table from label to minibatch: searching all rows for every label would take longer than the step of a small network.
        part_L = np.empty(len(order), dtype=int)
        for number, labels in enumerate(np.array_split(order, count)):
            part_L[labels] = number
        part_N = part_L[label_N.numpy()]
        return torch.from_numpy(part_N.argsort(kind="stable")).split(np.bincount(part_N, minlength=count).tolist())

    def save_state(self) -> dict[str, Any]:
        """Everything but the recipe and the policy's weights, which the policy saves itself: see ``load_state``."""
        control = {path: dict(state) for path, state in self.control_state.items()}
        loop = {} if self.loop is None else {"loop": self.loop.state_dict()}
        return {**self.models.state_dict(), "control": control, **loop}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``save_state``, with a policy that was loaded from where it was saved at the same time."""
        self.models.load_state_dict(state)
        self.control_state = dict(state["control"])
        if self.loop is not None:
            if "loop" not in state:
                raise ValueError(
                    "the checkpoint has no Stability state: its run did not use it, or used an earlier version of gimbal; start a "
                    "new run from its weights, policy.model=.../model"
                )
            self.loop.load_state_dict(state["loop"])
