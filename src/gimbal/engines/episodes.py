"""Generation in environments: a rollout is one whole episode, or a segment of one."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.dataflow.replay.hindsight import Hindsight
from gimbal.engines.base import AbstractEngine, AbstractEngineSpec, Finished, Request, check_slots, cut_short
from gimbal.engines.early_stop import EarlyStop, Reflection, Trace
from gimbal.engines.live_episode import ENDS, LiveEpisode, numbers, of_plays
from gimbal.engines.plays import Environments, Play, broke, one_step, several_steps
from gimbal.engines.precision import Form
from gimbal.engines.receipts import Reading, fingerprints, tensors
from gimbal.environments.base import Moment
from gimbal.environments.gym import AbstractActed
from gimbal.environments.minari import Minari
from gimbal.ops import philox
from gimbal.ops.correlated import correlated
from gimbal.ops.deadline import DESK, Call
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.control import AbstractControlPolicy, StepSampling
from gimbal.policies.squashed import SquashedGaussianPolicy
from gimbal.records import Drop, Episode, Rollout, Task

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.05}  # mean |log-prob gap| that the sampler's precision explains


class EpisodeEngine(AbstractEngine):
    """At most ``slots`` active environments; a step evaluates the policy on all their observations in one batch."""

    def __init__(self, policy: AbstractControlPolicy, spec: Episodes) -> None:
        dtype = getattr(torch, spec.dtype)
        self._policy = copy.deepcopy(policy).to("cpu", dtype).requires_grad_(False)
        self._held = self._policy.state_dict()  # its own tensors
        self._form = Form(dtype=dtype)
        self._slots, self._deadline, self._segment = spec.slots, spec.deadline, spec.segment
        self._correlation = spec.correlation
        self._reflection = None if spec.early_stop is None else Reflection(spec.early_stop)
        self._tolerance = TOLERANCE[dtype]
        self._version = -1
        self._temperature: tuple[list[float], Tensor] = [], torch.zeros(0)
        self._queue: deque[Request] = deque()
        self._live: list[LiveEpisode] = []  # in the order of their start
        self._environments = Environments(apart=spec.apart, most=spec.slots)
        self._paused: deque[Play] = deque()  # between two segments; the one that waits longest goes on first

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
        if not isinstance(request.sampling, StepSampling):
            raise ValueError(
                f"{request.sampling} is not for actions: a control policy needs sampling=StepSampling(...)"
            )
        self._queue.append(request)

    @torch.no_grad()
    def step(self) -> list[Finished]:
        assert self._version >= 0, "an engine samples only after its first load"
        finished: list[Finished] = []
        while self._queue and len(self._live) < self._slots:
            most = self._slots - len(self._live)
            for begun in self._begin([self._queue.popleft() for _ in range(min(most, len(self._queue)))]):
                if isinstance(begun, LiveEpisode):
                    self._live.append(begun)
                else:
                    finished.append(begun)
        if not self._live:
            return finished
        count_P = [play.stream.agents for play in self._live]
        rows = np.vstack if any(count_P) else np.array  # of each agent; the other takes half the time
        seen_BO = torch.from_numpy(rows([play.observations[-1] for play in self._live]))
        action_BA, behavior_B = self._policy.draw(
            seen_BO,
            torch.from_numpy(rows([play.noise_SA[play.length] for play in self._live])),
            self._temperatures(count_P),
        )
        going: list[LiveEpisode] = []
        done_BA, last_B = self._policy.done(seen_BO, action_BA), self._last(seen_BO, action_BA)
        drawn, done, logprobs = (of_plays(x_BX, count_P) for x_BX in (action_BA, done_BA, behavior_B))
        moments, behavior = self._act([play.stream for play in self._live], done), numbers(logprobs)
        answered = zip(self._live, drawn, done, behavior, moments, last_B, strict=True)
        for play, action_A, done_A, behavior, moment, last in answered:
            if moment.error:
                finished.append(play.broken(moment.error))
            elif stop := play.take(action_A, done_A, behavior, self._version, moment, last):
                if self._reflection is not None and stop in ENDS and play.stream.trace is not None:
                    self._reflection.past.append(play.stream.trace)
                whole = Episode(rows=play.rows(stop), apart=bool(play.each))
                finished.append(Finished(key=play.request.key, outcome=whole))
                if moment.begins is not None and self._reflection is not None:
                    raise ValueError(
                        f"{play.stream.environment.source} goes on by itself where an episode ends, and EarlyStop ends episodes by "
                        "resets: set engine.early_stop=none"
                    )
                goes_on = moment.begins is not None and play.stream.length < play.request.sampling.max_length
                if goes_on:
                    play.stream.anew()
                # What proves the delivery trains nobody, so the first episode does not go on from it.
                self._leave(play, paused=(stop == "paused" or goes_on) and play.request.group >= 0)
            else:
                going.append(play)
        self._live = going
        return finished

    def _last(self, seen_BO: Tensor, action_BA: Tensor) -> list[bool]:
        """Which of the live episodes are not worth more than this step."""
        if self._reflection is None:
            return [False] * len(self._live)
        assert isinstance(self._policy, SquashedGaussianPolicy), "fits refuses others"
        worths, traces = self._policy.worth(seen_BO, action_BA).tolist(), [play.stream.trace for play in self._live]
        judged = zip(traces, worths, strict=True)
        return [trace is not None and self._reflection.over(trace, worth) for trace, worth in judged]

    def _temperatures(self, count_P: Sequence[int]) -> Float[Tensor, " B"]:
        """Of the live episodes: mostly those of the step before, and a new tensor takes as long as a layer."""
        wanted = [play.request.sampling.temperature for play in self._live]
        if any(count_P):  # of each agent
            wanted = [t for t, count in zip(wanted, count_P, strict=True) for _ in range(count or 1)]
        if wanted != self._temperature[0]:
            self._temperature = wanted, torch.tensor(wanted)
        return self._temperature[1]

    def _act(self, plays: Sequence[Play], actions: Tensor | list[Tensor]) -> list[Moment]:
        """Their environments' answers, all from one other thread, which can be abandoned if a call does not return; from this thread if
        none of them can hang.

        An environment that raises or exceeds the deadline yields an error, and the rest continue in another thread.
        """
        act_BA = actions.numpy() if isinstance(actions, Tensor) else [action_NA.numpy() for action_NA in actions]
        if self._environments.apart:
            for play, action_A in zip(plays, act_BA, strict=True):
                play.environment.ask_step(action_A)
        if all(play.environment.instant for play in plays):  # another thread takes longer than their steps
            return [one_step(play, action_A) for play, action_A in zip(plays, act_BA, strict=True)]
        moments: list[Moment] = []
        while len(moments) < len(plays):
            rest, answers = plays[len(moments) :], list[Moment]()
            work = partial(several_steps, rest, act_BA[len(moments) :], answers)
            error = broke(DESK.call("environment step", work, deadline=self._deadline))
            moments += answers[: len(rest)]  # a copy: a thread that comes back late still has the list
            if error and len(moments) < len(plays):
                self._environments.lose(plays[len(moments)].environment)
                moments.append(Moment(error=error))
        return moments

    def _leave(self, play: LiveEpisode, *, paused: bool) -> None:
        """Its environment is for the next request: in the middle of its episode, or to be reset."""
        if paused:
            play.stream.noise_A = torch.from_numpy(play.noise_SA[play.length - 1].copy())
            self._paused.append(play.stream)
        else:
            self._environments.rest(play.stream.environment)

    def cancel(self, key: tuple[int, int]) -> Rollout | Drop | None:
        for request in self._queue:
            if request.key == key:
                self._queue.remove(request)
                return None
        for play in self._live:
            if play.request.key == key:
                self._live.remove(play)
                self._leave(play, paused=False)
                rows = play.rows("cancelled") if play.length else ()
                return cut_short(rows[-1], sum(row.length for row in rows)) if rows else None
        raise KeyError(f"no request {key} is in flight")

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        own = self._held
        if own.keys() == state.keys() and all(tensor.shape == state[name].shape for name, tensor in own.items()):
            for name, tensor in own.items():  # of a small network in a quarter of the time
                tensor.copy_(state[name])
        else:
            self._policy.load_state_dict(state)  # which says what is wrong
        self._version = version

    def close(self) -> None:
        self._environments.close()

    @property
    def form(self) -> Form:
        return self._form

    def reading(self) -> Reading:
        return Reading(version=self._version, prints=fingerprints(tensors(self._policy)))

    @torch.no_grad()
    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        return self._policy.evaluate(rollout.decisions, temperature=rollout.sampling.temperature).logprob_NS[0]

    def state_dict(self) -> dict[str, Any]:
        live = [
            {
                "request": play.request,
                "stream": play.stream.state_dict(),
                "drawn": [action_A.clone() for action_A in play.actions],
                "behavior": list(play.behavior),
                "versions": list(play.versions),
            }
            for play in self._live
        ]
        paused = [stream.state_dict() for stream in self._paused]
        past = {} if self._reflection is None else {"past": self._reflection.state_dict()}
        return {"queue": list(self._queue), "live": live, "paused": paused, **past}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._queue = deque(state["queue"])
        if self._reflection is not None:
            self._reflection.load_state_dict(state["past"])
        self._live, self._paused = [], deque()
        for saved in state["live"]:
            stream, moments = self._replayed(saved["stream"])
            begun = len(stream.actions) - len(saved["versions"])
            play = self._play(saved["request"], replace(stream, actions=stream.actions[:begun]))
            play.observations[0] = moments[begun].left
            play.stream.earned, play.stream.cost = _so_far(moments[1 : begun + 1])
            done, drawn = stream.actions[begun:], saved.get("drawn", stream.actions[begun:])
            rest = zip(drawn, done, saved["behavior"], saved["versions"], moments[begun + 1 :], strict=True)
            for entered in rest:
                play.take(*entered)
            self._live.append(play)
        for saved in state["paused"]:
            stream, moments = self._replayed(saved)
            stream.earned, stream.cost = _so_far(moments)
            self._paused.append(stream)

    def _replayed(self, saved: Mapping[str, Any]) -> tuple[Play, list[Moment]]:
        """An episode that was at play, brought to where it was, and what it was answered, the first observation before all."""
        task = saved["task"]
        (stream,) = self._reset([(task, saved["seed"])])
        if isinstance(stream, str):
            raise ValueError(f"an episode in progress could not be restarted: {stream}")
        moments = [Moment(observation=stream.observation)]
        for action_A in saved["actions"]:
            (moment,) = self._act([stream], action_A[None])
            if moment.error:
                raise ValueError(f"an episode in progress could not be replayed to where it was: {moment.error}")
            moments.append(moment)
        stream.actions = list(saved["actions"])
        stream.noise_A = saved["noise"]
        stream.trace = None if saved.get("trace") is None else Trace(**saved["trace"])
        stream.observation = moments[-1].left
        if stream.observation.tolist() != saved["observation"]:
            raise ValueError(
                f"{task.id} does not come back to the same observation when its seed and actions are "
                "repeated; an environment that cannot be replayed cannot be resumed. Its checkpoint's weights are "
                "whole: gimbal eval RUN evaluates them, and policy.model=runs/RUN/checkpoints/step_NUMBER/model begins a run with them"
            )
        return stream, moments

    def _begin(self, requests: Sequence[Request]) -> Iterator[LiveEpisode | Finished]:
        """Each where an episode of its source waits to go on, else at a beginning."""
        waiting = [self._waiting(request) for request in requests]
        fresh = [request for request, own in zip(requests, waiting, strict=True) if own is None]
        begun = iter(self._reset([(request.task, request.seed) for request in fresh]))
        for request, own in zip(requests, waiting, strict=True):
            yield self._play(request, own) if own is not None else self._began(request, next(begun))

    def _waiting(self, request: Request) -> Play | None:
        for stream in self._paused:
            if stream.task.source == request.task.source:
                self._paused.remove(stream)
                return stream
        return None

    def _began(self, request: Request, stream: Play | str) -> LiveEpisode | Finished:
        if isinstance(stream, str):
            return Finished(key=request.key, outcome=Drop("environment_error", said=stream))
        if self._reflection is not None and request.group >= 0:  # what proves the delivery trains nobody
            spared = philox("spared", *request.stream).random() < self._reflection.spec.spared
            stream.trace = Trace(spared=bool(spared))
        return self._play(request, stream)

    def _play(self, request: Request, stream: Play) -> LiveEpisode:
        most = request.sampling.max_length
        steps, agents = min(most, self._segment or most), stream.agents
        noise_SA = self._policy.noise(philox("episode", *request.stream), steps * (agents or 1))
        if agents:
            noise_SA = noise_SA.unflatten(0, (steps, agents))
        if self._correlation:
            noise_SA = correlated(noise_SA, stream.noise_A, self._correlation)
        return LiveEpisode(
            request=request,
            stream=stream,
            segment=self._segment,
            noise_SA=noise_SA.numpy(),
            observations=[stream.observation],
        )

    def _reset(self, asked: Sequence[tuple[Task, int]]) -> list[Play | str]:
        """An environment at the beginning of each of these tasks, with its seed, or what broke."""
        found = self._environments.taken([task.source for task, _ in asked])
        for environment, (task, _) in zip(found, asked, strict=True):
            if environment.agents and self._reflection is not None:
                raise ValueError(
                    f"{task.source} is of several agents, and EarlyStop is for one: set engine.early_stop=none"
                )
            if self._policy.interface != environment.interface:
                raise ValueError(
                    f"{task.source} has {environment.interface}, but the policy has {self._policy.interface}; "
                    "set policy.observations and policy.actions (Gaussian for real actions, Categorical for choices)"
                )
            environment.ask_reset(task)
        return [self._at_start(environment, *one) for environment, one in zip(found, asked, strict=True)]

    def _at_start(self, environment: AbstractActed, task: Task, seed: int) -> Play | str:
        seen: list[np.ndarray] = []

        def reset(call: Call) -> None:
            seen.append(environment.reset(task, seed))

        if error := broke(DESK.call("environment reset", reset, deadline=self._deadline, task=task.id)):
            self._environments.lose(environment)
        return error or Play(environment=environment, task=task, seed=seed, observation=seen[0])


def _so_far(moments: Sequence[Moment]) -> tuple[float, float | None]:
    """What the episode that is at play has earned and cost, in their order, as it was added up; no cost where none says any."""
    begun = max((place for place, moment in enumerate(moments, 1) if moment.begins is not None), default=0)
    said = [moment.cost for moment in moments[begun:] if moment.cost is not None]
    return sum((moment.reward for moment in moments[begun:]), 0.0), sum(said) if said else None


@dataclass(frozen=True, kw_only=True)
class Episodes(AbstractEngineSpec):
    """``slots`` environments in parallel; ``dtype`` is that of the sampler's copy of the policy.

    An environment that goes on by itself where an episode ends (``info["begins"]``) is not reset: the next request has what follows.

    A rollout is a whole episode. With ``segment`` above 0 it is at most that many steps of one, and the next rollout continues from
    there, so a learner step never waits for an episode's end. ``sampling.max_length`` limits the episode in both cases.

    A step or reset that raises or takes longer than ``deadline`` seconds ends its episode with an error, which is reported by task and
    turn, counted, and leaves the statistics. Steps of gymnasium's own classic control, a few lines of arithmetic each, are taken in
    the caller's thread and have no deadline: handing one to another thread takes longer than the step.

    ``correlation`` is that of the noise of an action with the noise of the next, over the segments of an episode too
    (``ops.correlated``): 0 is white noise, drawn for each action by itself. The noise of one action is distributed as before, and
    recorded log-probabilities are the policy's, as if steps were independent: only off-policy updates, which read none, take such data.

    ``early_stop`` cuts episodes off that are not worth finishing (``EarlyStop``).

    ``apart``: each environment is in a process of its own, and all are stepped at once, or reset; the rollouts are the same bits.
    """

    slots: int = 16
    segment: int = 0
    dtype: Literal["float32", "bfloat16"] = "float32"
    deadline: float = 60.0
    correlation: float = 0.0
    early_stop: EarlyStop | None = None
    apart: bool = False

    def __post_init__(self) -> None:
        check_slots(self.slots)
        if self.segment < 0:
            raise ValueError(f"engine.segment is {self.segment}; it counts steps, or is 0 for whole episodes")
        if self.deadline <= 0:
            raise ValueError(f"engine.deadline is {self.deadline}; it must be a number of seconds above 0")
        if not 0 <= self.correlation <= 1:
            raise ValueError(
                f"engine.correlation is {self.correlation}; it is that of the noise of successive actions, from 0 (none) to 1"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if whole.run.engine is self and isinstance(whole.run.tasks, Minari):
            yield Refusal(
                "the tasks are recorded episodes, and Episodes would act in their environment and ignore them: begin with td3_bc, iql, "
                "cql or bc and leave engine as it is, or act with tasks='Gymnasium(environment=...)'"
            )
        if whole.run.engine is self and self.segment and whole.has(Hindsight):
            yield Refusal(
                f"Hindsight takes goals from the rest of an episode, and engine.segment cuts rows of {self.segment} steps out of it: "
                "set engine.segment=0, for whole episodes"
            )
        if not self.correlation:
            return
        if not whole.run.learns.off_policy:
            yield Refusal(
                "engine.correlation ties the noise of an action to the one before, and the recorded log-probabilities leave that out: "
                "only updates that learn from steps of any age take it (sac, td3, expo); set engine.correlation=0"
            )
        if not whole.run.policy.family.densities:
            yield Refusal(
                f"engine.correlation is of noise on real actions, and {type(whole.run.policy).__name__} takes choices: set "
                "engine.correlation=0"
            )
        held_out = whole.run.held_out
        if held_out is not None and (held_out.engine or whole.run.engine) is self:
            yield Refusal("engine.correlation would shape the evaluation as well: set held_out.engine='Episodes()'")

    def start(self, policy: AbstractPolicy) -> EpisodeEngine:
        if not isinstance(policy, AbstractControlPolicy):
            raise ValueError(f"Episodes samples control policies, not {type(policy).__name__}")
        return EpisodeEngine(policy, self)
