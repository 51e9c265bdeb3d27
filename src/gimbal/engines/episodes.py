"""Generation in environments: a rollout is one whole episode."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.engines.base import AbstractEngine, AbstractEngineSpec, Finished, Request, check_slots
from gimbal.engines.precision import Form
from gimbal.engines.receipts import Reading, fingerprints, tensors
from gimbal.environments.gym import Environment
from gimbal.ops import philox
from gimbal.ops.activity import doing
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.control import AbstractControlPolicy, Steps
from gimbal.records import Rollout


@dataclass(kw_only=True)
class LiveEpisode:
    """A request under way. Lists have one entry a decision; ``observations`` one more, the present."""

    request: Request
    environment: Environment
    noise_SA: Tensor
    observations: list[np.ndarray]
    actions: list[Tensor] = field(default_factory=list)
    behavior: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        return len(self.actions)

    def act(self, action_A: Tensor, behavior: float, version: int) -> str:
        """Take one action. What ended the episode, or ''."""
        with doing("environment step", task=self.request.task.id, turn=self.length):
            moment = self.environment.step(action_A.numpy())
        self.actions.append(action_A)
        self.behavior.append(behavior)
        self.versions.append(version)
        self.rewards.append(moment.reward)
        self.observations.append(moment.observation_O)
        if moment.terminated:
            return "terminated"
        return "truncated" if moment.truncated or self.length == self.request.sampling.max_length else ""

    def rollout(self, stop: str) -> Rollout:
        seen = torch.from_numpy(np.stack(self.observations))
        return Rollout(
            task=self.request.task,
            sample=self.request.sample,
            decisions=Steps(
                observation_NSO=seen[None, :-1],
                action_NSA=torch.stack(self.actions)[None],
                final_NO=seen[None, -1],
                length_N=torch.tensor([self.length]),
                terminated_N=torch.tensor([stop == "terminated"]),
            ),
            behavior_S=torch.tensor(self.behavior),
            version_S=torch.tensor(self.versions),
            mask_S=torch.ones(self.length, dtype=torch.bool),
            reward_S=torch.tensor(self.rewards),
            stop=stop,
            sampling=self.request.sampling,
        )


TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}  # mean |log-prob gap| that the sampler's precision explains


class EpisodeEngine(AbstractEngine):
    """At most ``slots`` environments at play; a step evaluates the policy on all their observations in one batch."""

    def __init__(self, policy: AbstractControlPolicy, slots: int, dtype: torch.dtype) -> None:
        self._policy = copy.deepcopy(policy).to("cpu", dtype).requires_grad_(False)
        self._form = Form(dtype=dtype)
        self._slots = slots
        self._tolerance = TOLERANCE[dtype]
        self._version = -1
        self._queue: deque[Request] = deque()
        self._live: list[LiveEpisode] = []  # in the order of their start
        self._idle: list[Environment] = []

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
        sampling = request.sampling
        if sampling.top_k or sampling.top_p < 1 or sampling.min_p or sampling.stop:
            raise ValueError(
                f"{sampling} asks for top_k, top_p, min_p or stop strings, which control policies do not know"
            )
        self._queue.append(request)

    @torch.no_grad()
    def step(self) -> list[Finished]:
        assert self._version >= 0, "an engine samples only after its first load"
        while self._queue and len(self._live) < self._slots:
            self._live.append(self._begin(self._queue.popleft()))
        if not self._live:
            return []
        action_BA, behavior_B = self._policy.draw(
            torch.from_numpy(np.stack([episode.observations[-1] for episode in self._live])),
            torch.stack([episode.noise_SA[episode.length] for episode in self._live]),
            torch.tensor([episode.request.sampling.temperature for episode in self._live]),
        )
        finished: list[Finished] = []
        going: list[LiveEpisode] = []
        for episode, action_A, behavior in zip(self._live, action_BA, behavior_B.tolist(), strict=True):
            if stop := episode.act(action_A, behavior, self._version):
                finished.append(Finished.of(episode.request.key, episode.rollout(stop)))
                self._idle.append(episode.environment)
            else:
                going.append(episode)
        self._live = going
        return finished

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        for request in self._queue:
            if request.key == key:
                self._queue.remove(request)
                return None
        for episode in self._live:
            if episode.request.key == key:
                self._live.remove(episode)
                self._idle.append(episode.environment)
                return episode.rollout("cancelled") if episode.length else None
        raise KeyError(f"no request {key} is in flight")

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self._policy.load_state_dict(state)
        self._version = version

    @property
    def form(self) -> Form:
        return self._form

    def reading(self) -> Reading:
        return Reading(version=self._version, prints=fingerprints(tensors(self._policy)))

    @torch.no_grad()
    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        return self._policy.evaluate(rollout.decisions, temperature=rollout.sampling.temperature).logprob_NS[0]

    def state_dict(self) -> dict[str, Any]:
        """Environments do not travel: their seed and the actions so far bring one to the same state."""
        live = [
            {
                "request": episode.request,
                "actions": [action_A.clone() for action_A in episode.actions],  # each is a view of a whole step's
                "behavior": list(episode.behavior),
                "versions": list(episode.versions),
                "observation": episode.observations[-1].tolist(),
            }
            for episode in self._live
        ]
        return {"queue": list(self._queue), "live": live}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._queue = deque(state["queue"])
        self._live = []
        for saved in state["live"]:
            episode = self._begin(saved["request"])
            for action_A, behavior, version in zip(saved["actions"], saved["behavior"], saved["versions"], strict=True):
                episode.act(action_A, behavior, version)
            if episode.observations[-1].tolist() != saved["observation"]:
                raise ValueError(
                    f"{episode.request.task.id} does not come back to the same observation when its seed and actions are "
                    "repeated; an environment that cannot be replayed cannot be resumed"
                )
            self._live.append(episode)

    def _begin(self, request: Request) -> LiveEpisode:
        task = request.task
        match = next((e for e in self._idle if e.source == task.source), None)
        if match is not None:
            self._idle.remove(match)
        environment = match or Environment(task.source)
        if self._policy.interface != environment.interface:
            raise ValueError(
                f"{task.source} has {environment.interface}, but the policy has {self._policy.interface}; "
                "set policy.observations and policy.actions (Gaussian for real actions, Categorical for choices)"
            )
        generator = philox("episode", request.seed, task.id, request.sample)
        return LiveEpisode(
            request=request,
            environment=environment,
            noise_SA=self._policy.noise(generator, request.sampling.max_length),
            observations=[environment.reset(task)],
        )


@dataclass(frozen=True, kw_only=True)
class Episodes(AbstractEngineSpec):
    """``slots`` environments side by side; ``dtype`` is that of the sampler's copy of the policy."""

    slots: int = 16
    dtype: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self) -> None:
        check_slots(self.slots)

    def start(self, policy: AbstractPolicy) -> EpisodeEngine:
        if not isinstance(policy, AbstractControlPolicy):
            raise ValueError(f"Episodes samples control policies, not {type(policy).__name__}")
        return EpisodeEngine(policy, self.slots, getattr(torch, self.dtype))
