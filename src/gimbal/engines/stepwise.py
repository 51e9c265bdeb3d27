"""What engines of denoising policies have in common: rollouts in progress, and a step that evaluates the network on all of them."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.engines.base import AbstractEngine, Finished, Request
from gimbal.engines.precision import Fit, Form, Precision
from gimbal.engines.receipts import Reading, fingerprints, tensors, unsaved
from gimbal.policies.base import AbstractPolicy
from gimbal.records import AbstractSampling, Rollout


@runtime_checkable
class Ongoing(Protocol):
    """A rollout in progress. ``begun``: it has decisions of its own."""

    request: Request

    @property
    def begun(self) -> bool: ...

    @property
    def done(self) -> bool: ...

    def rollout(self, stop: str) -> Rollout: ...


Live = TypeVar("Live", bound=Ongoing)
Policy = TypeVar("Policy", bound=AbstractPolicy)


class AbstractStepwise(AbstractEngine, Generic[Live, Policy]):
    """At most ``slots`` rollouts in progress, in the order of their start; each step advances all of them."""

    def __init__(self, policy: Policy, slots: int, precision: Precision, tolerance: float) -> None:
        self._policy = copy.deepcopy(policy).eval().requires_grad_(False)
        self.device = next(policy.parameters()).device
        self._weights = HeldWeights(self._policy, policy, precision)
        self._slots, self._tolerance, self._version = slots, tolerance, -1
        self._queue: deque[Request] = deque()
        self._live: list[Live] = []

    @abstractmethod
    def check(self, sampling: AbstractSampling) -> None:
        """ValueError if these settings are not for this policy."""

    @abstractmethod
    def begin(self, request: Request) -> Live: ...

    @abstractmethod
    def advance(self, live: Sequence[Live]) -> None:
        """Take the next step of each."""

    @abstractmethod
    def saved(self, live: Live) -> dict[str, Any]:
        """All that ``restored`` needs of a rollout in progress. Random numbers are not saved: they follow from its request."""

    @abstractmethod
    def restored(self, saved: Mapping[str, Any]) -> Live: ...

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return self._tolerance

    @property
    def in_flight(self) -> int:
        return len(self._queue) + len(self._live)

    def submit(self, request: Request) -> None:
        self.check(request.sampling)
        self._queue.append(request)

    @torch.no_grad()
    def step(self) -> list[Finished]:
        assert self._version >= 0, "an engine samples only after its first load"
        while self._queue and len(self._live) < self._slots:
            self._live.append(self.begin(self._queue.popleft()))
        if self._live:
            self.advance(self._live)
        ended = [live for live in self._live if live.done]
        self._live = [live for live in self._live if not live.done]
        return [Finished.of(live.request.key, live.rollout("stop")) for live in ended]

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        for request in self._queue:
            if request.key == key:
                self._queue.remove(request)
                return None
        for live in self._live:
            if live.request.key == key:
                self._live.remove(live)
                return live.rollout("cancelled") if live.begun else None
        raise KeyError(f"no request {key} is in flight")

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self._weights.load(state)
        self._version = version

    @property
    def form(self) -> Form | None:
        return self._weights.form

    def reading(self) -> Reading:
        return Reading(version=self._version, prints=fingerprints(tensors(self._policy)))

    @torch.no_grad()
    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        temperature = rollout.sampling.temperature or 1.0  # greedy rollouts record the policy's own log-probabilities
        return self._policy.evaluate(rollout.decisions.to(self.device), temperature=temperature).logprob_NS[0]

    def partial_rollouts(self) -> list[Finished]:
        return [Finished.of(live.request.key, live.rollout("cancelled")) for live in self._live if live.begun]

    def state_dict(self) -> dict[str, Any]:
        return {"queue": list(self._queue), "live": [self.saved(live) for live in self._live]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._queue = deque(state["queue"])
        self._live = [self.restored(saved) for saved in state["live"]]


class HeldWeights:
    """The tensors of a sampler's copy, reloaded in its precision.

    bfloat16 casts the weights and computes in bfloat16, except for means and log-probabilities. int8 rounds the weight of every
    linear layer to 8 bits, one scale per output channel, and computes in float32, as Native does; a layer that is tied to an embedding
    stays as it is.
    """

    def __init__(self, own: AbstractPolicy, policy: AbstractPolicy, precision: Precision) -> None:
        frozen = {name for name, parameter in policy.named_parameters() if not parameter.requires_grad}
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        own.to(dtype)
        kept = unsaved(policy)
        for name in kept:  # such as position embeddings, which a weight sync does not send
            path, _, last = name.rpartition(".")
            own.get_submodule(path).register_buffer(last, policy.get_buffer(name).clone(), persistent=False)
        embedded = {id(m.weight) for m in own.modules() if isinstance(m, nn.Embedding)}
        layers = ((name, m) for name, m in own.named_modules() if isinstance(m, nn.Linear) and ".lora_" not in name)
        linear = [name for name, m in layers if id(m.weight) not in embedded]
        axes = {f"{name}.weight": 0 for name in linear} if precision == "int8" else {}
        self.form = Form(dtype=dtype, axes=axes, kept=frozenset(kept))
        self._fit = Fit(own.state_dict(keep_vars=True), frozen)
        for name in frozen:
            with torch.no_grad():
                self._fit.tensors[name].copy_(self.form(name, self._fit.tensors[name]))

    @torch.no_grad()
    def load(self, state: Mapping[str, Tensor]) -> None:
        for name, new in self._fit(state).items():
            self._fit.tensors[name].copy_(self.form(name, new.to(self._fit.tensors[name].device)))
