"""Generation by denoising: a rollout is a path from noise to a sample."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import DRAW, FORK, AbstractEngineSpec, Request, check_slots
from gimbal.engines.precision import Precision
from gimbal.engines.stepwise import AbstractStepwise
from gimbal.environments.conditions import Conditions, listed
from gimbal.nested import walk
from gimbal.ops import philox
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.denoiser import GIVEN, Denoiser, DenoiserPolicy, NoiseSchedule, fitting
from gimbal.policies.diffusers import FLOW, scheduled
from gimbal.policies.paths import ODE, Paths, PathSampling
from gimbal.policies.samplers import log_density, wide
from gimbal.records import AbstractSampling, Rollout
from gimbal.rewards.samples import AbstractSampleReward

# Mean |log-prob gap| to a float32 trainer at equal weights that each precision explains, of sums over 64 dimensions. Measured on
# gimbal-digits: docs/denoising.md.
TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "bfloat16": 0.5, "int8": 1.5}

FEW = 10  # classes, of those that a sentence proposes


@dataclass(kw_only=True)
class LivePath:
    """A path in progress. Lists have one entry per step; ``states`` has one more, the current one."""

    request: Request
    sampling: PathSampling
    schedule: NoiseSchedule
    amplitude_S: Tensor
    noise_SD: Tensor  # of each step
    label: int
    given_D: Tensor | None  # what the network sees beside the noise
    states: list[Tensor]
    kept: int = 0  # steps taken over from the path that it split off; what it draws itself comes after them
    means: list[Tensor] = field(default_factory=list)
    stds: list[float] = field(default_factory=list)
    behavior: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.means)

    @property
    def begun(self) -> bool:
        return self.length > self.kept

    @property
    def done(self) -> bool:
        return self.length == len(self.amplitude_S)

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
                given_ND=None if self.given_D is None else self.given_D[None],
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


class DenoisingEngine(AbstractStepwise[LivePath, DenoiserPolicy]):
    """At most ``slots`` paths in progress, each at its own noise level; a step evaluates the network on all of them together."""

    def __init__(self, policy: DenoiserPolicy, spec: Denoising) -> None:
        super().__init__(policy, spec.slots, spec.precision, TOLERANCE[spec.precision])
        self._schedules: dict[PathSampling, NoiseSchedule] = {}
        self._trunks: dict[tuple[int, int], tuple[Rollout, int]] = {}  # of queued branches: which path, how many steps

    def check(self, sampling: AbstractSampling) -> None:
        fitting(self._policy, sampling)

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

    def begin(self, request: Request) -> LivePath:
        return self._begin(request, *self._trunks.pop(request.key, (None, 0)))

    def advance(self, live: Sequence[LivePath]) -> None:
        for sampler in dict.fromkeys(path.sampling.sampler for path in live):
            self._draw(sampler, [path for path in live if path.sampling.sampler == sampler])

    def _draw(self, sampler: str, paths: Sequence[LivePath]) -> None:
        """The next step of each."""
        # Paths stay in main memory, where rewards and records want them; only the network may be elsewhere.
        where = self.device
        amplitude_B = torch.stack([path.amplitude_S[path.length] for path in paths])
        given = [x for path in paths if (x := path.given_D) is not None]
        found = self._policy.step(
            torch.stack([path.states[-1] for path in paths]).to(where),
            torch.stack([path.schedule.level_SL[path.length] for path in paths]).to(where),
            torch.stack([path.schedule.time_S[path.length] for path in paths]).to(where),
            amplitude_B.to(where),
            torch.tensor([path.label for path in paths], device=where),
            sampler,
            torch.stack(given).to(where) if given else None,
        )
        mean_BD, std_B = (part.cpu() for part in found)
        noise_BD = torch.stack([path.noise_SD[path.length] for path in paths])
        std_B = std_B.where(amplitude_B > 0, 0)
        next_BD = mean_BD + wide(std_B, noise_BD) * noise_BD
        logprob_B = log_density(next_BD, mean_BD, std_B.where(std_B > 0, 1), 1.0).where(std_B > 0, 0)
        if sampler == ODE:  # as the policy evaluates it; only that of the last step counts
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
        self._trunks.pop(key, None)
        return super().cancel(key)

    def saved(self, live: LivePath) -> dict[str, Any]:
        return {
            "request": live.request,
            "states": [state_D.clone() for state_D in live.states],  # each is a view of a whole step's
            "means": [mean_D.clone() for mean_D in live.means],
            "stds": list(live.stds),
            "behavior": list(live.behavior),
            "versions": list(live.versions),
            "kept": live.kept,
        }

    def restored(self, saved: Mapping[str, Any]) -> LivePath:
        path = self._begin(saved["request"])
        path.states, path.means = list(saved["states"]), list(saved["means"])
        path.stds, path.behavior, path.versions = saved["stds"], saved["behavior"], saved["versions"]
        path.keep(saved["kept"])
        return path

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "trunks": dict(self._trunks)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._trunks = dict(state["trunks"])

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
        own = philox("path", *request.stream) if request.row else begun
        # Rows of a sample start from one noise, which branches share; but what follows another block is another sample.
        start = _normal(own if request.after is not None else shared if sampling.same_start else begun, shape)
        given_D = self._policy.given(request.after, request.task.columns.get(GIVEN))
        path = LivePath(
            request=request,
            sampling=sampling,
            schedule=self._schedule(sampling),
            amplitude_S=amplitude_S,
            noise_SD=_normal(own, (steps, *shape)),
            label=self._policy.label(request.task),
            given_D=given_D,
            states=[self._policy.begun(start if request.start is None else request.start, given_D, sampling)],
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

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        policy = whole.run.policy
        yield from _unguided(whole)
        if not isinstance(policy, Denoiser):
            return
        yield from _steps(policy, whole)
        held_out = {} if whole.run.held_out is None else {"held_out.tasks": whole.run.held_out.tasks}
        wrong: dict[str, str] = {}  # what is, and what to set instead
        for place, tasks in {"tasks": whole.run.tasks, **held_out}.items():
            if not isinstance(tasks, Conditions):
                continue
            known = [label for label in tasks.labels if label < policy.classes] or [*range(min(policy.classes, FEW))]
            way = f"{place}.labels={listed(known)}"
            if why := policy.unknown(tasks.labels):
                wrong[f"{place}.labels asks for {why}"] = way
            elif not tasks.labels and policy.only_by_class:
                wrong[f"{place} asks for no class, and {policy.model} samples only with one"] = way
        if wrong:
            yield Refusal(f"{next(iter(wrong))}: set {' '.join(wrong.values())}")
        shape = policy.sample_shape
        whys = (reward.misfit(math.prod(shape)) for reward in whole.all(AbstractSampleReward)) if shape else ()
        if why := next(filter(None, whys), ""):
            yield Refusal(why)

    def start(self, policy: AbstractPolicy) -> DenoisingEngine:
        if not isinstance(policy, DenoiserPolicy):
            raise ValueError(f"Denoising samples denoising policies, not {type(policy).__name__}")
        return DenoisingEngine(policy, self)


def _unguided(whole: Composition) -> Iterator[Verdict]:
    """Guidance pulls from a sample of no class to one of the class that is asked for."""
    if not isinstance(whole.run.tasks, Conditions) or whole.run.tasks.labels:
        return
    for place, part in walk(whole.run):
        if isinstance(part, Denoiser) and part.guidance != 1:
            yield Refusal(
                f"{place}.guidance={part.guidance:g} pulls towards the class that a task asks for, and these tasks ask for none, so it "
                f"would do nothing: name classes (tasks.labels=[0,1] held_out.tasks.labels=[0,1]), or set {place}.guidance=1"
            )


def _steps(policy: Denoiser, whole: Composition) -> Iterator[Verdict]:
    """More steps in a window than can be sampled, or in a path than the schedule that the model was trained on has."""
    sampling = whole.run.sampling
    if isinstance(sampling, PathSampling) and sampling.sampler != ODE:
        most = len(sampling.drawn(sampling.max_length))
        if sampling.window > most > 0:
            yield Refusal(
                f"sampling.window is {sampling.window}, and of sampling.max_length={sampling.max_length} steps {most} may be drawn "
                f"(sampling.first, sampling.last): set sampling.window={most}, or 0 for all of them"
            )
    try:
        said = scheduled(Path(policy.path))
    except (OSError, ValueError):  # check_files says so
        return
    if said.get("_class_name") == FLOW:  # of a flow every time between 0 and 1 is a noise level
        return
    most = said.get("num_train_timesteps", 1000)
    held_out = whole.run.held_out
    for place, given in (("sampling", whole.run.sampling), ("held_out.sampling", held_out and held_out.sampling)):
        if isinstance(given, PathSampling) and given.max_length > most:
            yield Refusal(
                f"{place}.max_length is {given.max_length}, and {policy.model} was trained on {most} noise levels "
                f"(num_train_timesteps of its scheduler): set {place}.max_length={most} or less"
            )
