"""Generation by denoising: a rollout is a path from noise to a sample."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.engines.base import DRAW, FORK, AbstractEngine, AbstractEngineSpec, Finished, Request, check_slots
from gimbal.engines.precision import Fit, Form, Precision
from gimbal.engines.receipts import Reading, fingerprints, tensors, unsaved
from gimbal.ops import philox
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.denoiser import DenoiserPolicy, NoiseSchedule, fitting
from gimbal.policies.paths import ODE, Paths, PathSampling
from gimbal.policies.samplers import log_density
from gimbal.records import Rollout

# Mean |log-prob gap| to a float32 trainer at equal weights that each precision explains, of sums over 64 dimensions. Measured on
# gimbal-digits: docs/denoising.md.
TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 0.5, "int8": 1.5}


@dataclass(kw_only=True)
class LivePath:
    """A path in progress. Lists have one entry per step; ``states`` has one more, the current one."""

    request: Request
    sampling: PathSampling
    schedule: NoiseSchedule
    amplitude_S: Tensor
    noise_SD: Tensor  # of each step
    label: int
    states: list[Tensor]
    kept: int = 0  # steps taken over from the path that it split off; what it draws itself comes after them
    means: list[Tensor] = field(default_factory=list)
    stds: list[float] = field(default_factory=list)
    behavior: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.means)

    def keep(self, steps: int) -> None:
        """Its first steps are another path's: without amplitude they are no decisions here, and their log-probability is 0."""
        self.kept = steps
        self.amplitude_S[:steps] = 0

    def rollout(self, stop: str) -> Rollout:
        steps = self.length
        amplitude_S = self.amplitude_S[:steps]
        mask_S = amplitude_S > 0
        if self.sampling.sampler == ODE and self.sampling.temperature > 0:
            mask_S = torch.arange(steps) == len(self.amplitude_S) - 1
        return Rollout(
            task=self.request.task,
            sample=self.request.sample,
            row=self.request.row,
            decisions=Paths(
                state_NXD=torch.stack(self.states)[None],
                level_NSL=self.schedule.level_SL[None, :steps],
                time_NS=self.schedule.time_S[None, :steps],
                amplitude_NS=amplitude_S[None],
                mean_NSD=torch.stack(self.means)[None],
                std_NS=torch.tensor([self.stds]),
                label_N=torch.tensor([self.label]),
                length_N=torch.tensor([steps]),
                sampler=self.sampling.sampler,
                reduce=self.sampling.reduce,
            ),
            behavior_S=torch.tensor(self.behavior),
            version_S=torch.tensor(self.versions),
            mask_S=mask_S,
            reward_S=torch.zeros(steps),
            stop=stop,
            sampling=self.sampling,
        )


class DenoisingEngine(AbstractEngine):
    """At most ``slots`` paths in progress, each at its own noise level; a step evaluates the network on all of them together."""

    def __init__(self, policy: DenoiserPolicy, spec: Denoising) -> None:
        self._spec, self._policy = spec, policy_copy(policy)
        self._weights = HeldWeights(self._policy, policy, spec.precision)
        self._version = -1
        self._schedules: dict[PathSampling, NoiseSchedule] = {}
        self._queue: deque[Request] = deque()
        self._trunks: dict[tuple[int, int], tuple[Rollout, int]] = {}  # of queued branches: which path, how many steps
        self._live: list[LivePath] = []  # in the order of their start

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self._spec.precision]

    @property
    def in_flight(self) -> int:
        return len(self._queue) + len(self._live)

    def submit(self, request: Request) -> None:
        fitting(self._policy, request.sampling)
        self._queue.append(request)

    def extend(self, request: Request, rollout: Rollout, told: Sequence[int] = (), *, first: int | None = None) -> None:
        """A branch: it begins with the first steps of a finished path, which are not evaluated again, and then has its own noise."""
        assert first is not None and not told, "a path is forked; there is nothing to tell it"
        level_SL = self._schedule(fitting(self._policy, request.sampling)).level_SL
        if not torch.equal(level_SL[:first], _paths(rollout).level_NSL[0, :first]):
            raise ValueError(
                f"a branch of {len(level_SL)} denoising steps has other noise levels than the {rollout.length} steps of the path that "
                "it splits off: leave sampling= and most= out of Fork"
            )
        self.submit(request)
        self._trunks[request.key] = rollout, first

    @torch.no_grad()
    def step(self) -> list[Finished]:
        assert self._version >= 0, "an engine samples only after its first load"
        while self._queue and len(self._live) < self._spec.slots:
            request = self._queue.popleft()
            self._live.append(self._begin(request, *self._trunks.pop(request.key, (None, 0))))
        if not self._live:
            return []
        for sampler in dict.fromkeys(path.sampling.sampler for path in self._live):
            self._draw(sampler, [path for path in self._live if path.sampling.sampler == sampler])
        ended = [path for path in self._live if path.length == len(path.amplitude_S)]
        self._live = [path for path in self._live if path.length < len(path.amplitude_S)]
        return [Finished.of(path.request.key, path.rollout("stop")) for path in ended]

    def _draw(self, sampler: str, paths: Sequence[LivePath]) -> None:
        """The next step of each."""
        at = [path.length for path in paths]
        amplitude_B = torch.stack([path.amplitude_S[s] for path, s in zip(paths, at, strict=True)])
        mean_BD, std_B = self._policy.step(
            torch.stack([path.states[-1] for path in paths]),
            torch.stack([path.schedule.level_SL[s] for path, s in zip(paths, at, strict=True)]),
            torch.stack([path.schedule.time_S[s] for path, s in zip(paths, at, strict=True)]),
            amplitude_B,
            torch.tensor([path.label for path in paths]),
            sampler,
        )
        noise_BD = torch.stack([path.noise_SD[s] for path, s in zip(paths, at, strict=True)])
        std_B = std_B.where(amplitude_B > 0, 0)
        next_BD = mean_BD + std_B.reshape(-1, *[1] * (noise_BD.ndim - 1)) * noise_BD
        logprob_B = log_density(next_BD, mean_BD, std_B.where(std_B > 0, 1), 1.0).where(std_B > 0, 0)
        if sampler == ODE:  # as the policy evaluates it: only the last one counts
            first_BD = torch.stack([path.means[0] if path.means else mean_BD[i] for i, path in enumerate(paths)])
            logprob_B = log_density(next_BD, first_BD, torch.ones_like(std_B), 1.0)
        parts = zip(paths, next_BD.unbind(), mean_BD.unbind(), std_B.tolist(), logprob_B, strict=True)
        for path, next_D, mean_D, std, logprob in parts:
            path.states.append(next_D)
            path.means.append(mean_D)
            path.stds.append(std)
            scale = 1.0 if path.sampling.reduce == "sum" else 1 / next_D.numel()
            path.behavior.append(float(scale * logprob))
            path.versions.append(self._version)

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        for request in self._queue:
            if request.key == key:
                self._queue.remove(request)
                self._trunks.pop(key, None)
                return None
        for path in self._live:
            if path.request.key == key:
                self._live.remove(path)
                return path.rollout("cancelled") if path.length > path.kept else None
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
        return self._policy.evaluate(rollout.decisions).logprob_NS[0]

    def partial_rollouts(self) -> list[Finished]:
        return [Finished.of(p.request.key, p.rollout("cancelled")) for p in self._live if p.length > p.kept]

    def state_dict(self) -> dict[str, Any]:
        """Noise is not saved: it is generated again from the name of its request."""
        live = [
            {
                "request": path.request,
                "states": [state_D.clone() for state_D in path.states],  # each is a view of a whole step's
                "means": [mean_D.clone() for mean_D in path.means],
                "stds": list(path.stds),
                "behavior": list(path.behavior),
                "versions": list(path.versions),
                "kept": path.kept,
            }
            for path in self._live
        ]
        return {"queue": list(self._queue), "trunks": dict(self._trunks), "live": live}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._queue, self._trunks, self._live = deque(state["queue"]), dict(state.get("trunks", {})), []
        for saved in state["live"]:
            path = self._begin(saved["request"])
            path.states, path.means = list(saved["states"]), list(saved["means"])
            path.stds, path.behavior, path.versions = saved["stds"], saved["behavior"], saved["versions"]
            path.keep(saved.get("kept", 0))
            self._live.append(path)

    def _schedule(self, sampling: PathSampling) -> NoiseSchedule:
        if sampling not in self._schedules:
            self._schedules[sampling] = self._policy.schedule(sampling)
        return self._schedules[sampling]

    def _begin(self, request: Request, trunk: Rollout | None = None, kept: int = 0) -> LivePath:
        sampling = fitting(self._policy, request.sampling)
        steps, shape = sampling.max_length, self._policy.sample_shape
        # Of the sample: all its rows start from one noise.
        begun = philox("path", request.seed, request.task.id, request.sample)
        shared = philox("start", request.seed, request.task.id)
        amplitude_S = torch.zeros(steps)
        if sampling.temperature > 0 and sampling.sampler != ODE and (drawn := sampling.drawn(steps)):
            if sampling.window:
                first = int(shared.integers(max(1, len(drawn) - sampling.window + 1)))
                drawn = drawn[first : first + sampling.window]
            amplitude_S[drawn.start : drawn.stop] = sampling.noise
        start = _normal(shared if sampling.same_start else begun, shape)
        own = philox("path", *request.stream) if request.row else begun
        path = LivePath(
            request=request,
            sampling=sampling,
            schedule=self._schedule(sampling),
            amplitude_S=amplitude_S,
            noise_SD=_normal(own, (steps, *shape)),
            label=self._policy.label(request.task),
            states=[start],
        )
        if trunk is not None:
            known = _paths(trunk)
            path.states, path.means = list(known.state_NXD[0, : kept + 1]), list(known.mean_NSD[0, :kept])
            path.stds, path.versions = known.std_NS[0, :kept].tolist(), trunk.version_S[:kept].tolist()
            path.behavior = [0.0] * kept
            path.keep(kept)
        return path


def _paths(rollout: Rollout) -> Paths:
    assert isinstance(rollout.decisions, Paths), type(rollout.decisions)
    return rollout.decisions


def _normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))


def policy_copy(policy: DenoiserPolicy) -> DenoiserPolicy:
    return copy.deepcopy(policy).eval().requires_grad_(False)


class HeldWeights:
    """The tensors of a sampler's copy, reloaded in its precision.

    bfloat16 casts the weights and computes in bfloat16, except for means and log-probabilities. int8 rounds the weight of every
    linear layer to 8 bits, one scale per output channel, and computes in float32, as Native does.
    """

    def __init__(self, own: DenoiserPolicy, policy: DenoiserPolicy, precision: Precision) -> None:
        frozen = {name for name, parameter in policy.named_parameters() if not parameter.requires_grad}
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        own.to(dtype)
        kept = unsaved(policy)
        for name in kept:  # such as embeddings of positions, which nobody delivers
            path, _, last = name.rpartition(".")
            own.get_submodule(path).register_buffer(last, policy.get_buffer(name).clone(), persistent=False)
        linear = [name for name, m in own.named_modules() if isinstance(m, nn.Linear) and ".lora_" not in name]
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


@dataclass(frozen=True, kw_only=True)
class Denoising(AbstractEngineSpec):
    """Samples ``slots`` paths in parallel, at any mix of noise levels, in ``precision``: float32, bfloat16, or with int8 weights.

    Each sample has its own random numbers, so it does not depend on its neighbours. New weights apply from the next step on, also
    to paths in progress; each step records the version that sampled it.
    """

    slots: int = 64
    precision: Precision = "float32"

    def __post_init__(self) -> None:
        check_slots(self.slots)
        if self.precision not in TOLERANCE:
            raise ValueError(f"engine.precision is {self.precision}; choose among {', '.join(TOLERANCE)}")

    @property
    def can(self) -> frozenset[str]:
        return frozenset({DRAW, FORK})

    def start(self, policy: AbstractPolicy) -> DenoisingEngine:
        if not isinstance(policy, DenoiserPolicy):
            raise ValueError(f"Denoising samples denoising policies, not {type(policy).__name__}")
        return DenoisingEngine(policy, self)
