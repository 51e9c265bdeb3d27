"""A request for an episode in progress, of one agent or of several that act at once, and the rows that it ends in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.engines.base import Finished, Request
from gimbal.engines.plays import Play
from gimbal.environments.base import Moment
from gimbal.policies.control import Steps
from gimbal.records import Drop, Episode, Rollout

ENDS = ("terminated", "truncated")  # of an episode
SUCCESS = (
    "success"  # in a rollout's scores at an episode's end: whether its goal is reached, where its environment says so
)
RETURN = "return"  # in a rollout's scores, where it is the last segment of an episode: what all of that earned
STOPPED = "stopped"  # in a rollout's scores at an episode's end: whether it was cut off early, where any may be
COST = "cost"  # in a rollout's scores at an episode's end: what all of it cost, where its environment says so


@dataclass(kw_only=True)
class LiveEpisode:
    """A request in progress. Lists have one entry per decision; ``observations`` has one more, the current one.

    ``stream`` is the episode it plays; earlier requests may have played its beginning.
    """

    request: Request
    stream: Play
    segment: int  # the most steps of a row; 0: no limit but the episode's
    noise_SA: Float[np.ndarray, "S *agents A"]
    observations: list[np.ndarray]
    actions: list[Tensor] = field(default_factory=list)  # of several agents all of theirs, as observations are
    behavior: list[Any] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)  # where the environment says them
    each: list[tuple[Moment | None, ...]] = field(default_factory=list)  # what each of several agents was answered

    @property
    def length(self) -> int:
        return len(self.actions)

    def take(
        self, action_A: Tensor, done_A: Tensor, behavior: Any, version: int, moment: Moment, last: bool = False
    ) -> str:
        """Enter one action, what was done, and what it was answered; ``last``: it is not worth going on. What ended the row, or ''."""
        self.actions.append(action_A)
        self.behavior.append(behavior)
        self.versions.append(version)
        self.rewards.append(moment.reward)
        if moment.each:
            self.each.append(moment.each)
        self.observations.append(moment.observation)
        self.stream.actions.append(done_A)
        self.stream.observation = moment.left
        self.stream.earned += moment.reward
        self.stream.success = moment.success
        if moment.cost is not None:
            self.costs.append(moment.cost)
            self.stream.cost = (self.stream.cost or 0.0) + moment.cost
        if self.stream.trace is not None:
            self.stream.trace.reward = moment.reward
        if moment.terminated:
            return "terminated"
        if moment.truncated or len(self.stream.actions) >= self.request.sampling.max_length:
            return "truncated"
        if last:
            assert self.stream.trace is not None
            self.stream.trace.stopped = True
            return "truncated"
        return "paused" if self.length == self.segment else ""

    def broken(self, error: str) -> Finished:
        """Its end where the environment broke: the steps until then, which leave the statistics, or nothing at all."""
        key = self.request.key
        if not self.length:
            return Finished(key=key, outcome=Drop("environment_error", said=error, task=self.stream.task.id))
        # Another request may have begun the episode: what reproduces it is that one's task.
        rows = tuple(replace(row, task=self.stream.task) for row in self.rows("error"))
        return Finished(key=key, outcome=Episode(rows=rows, error=error, apart=bool(self.each)))

    def rows(self, stop: str) -> tuple[Rollout, ...]:
        """Its end: one row, or one of each agent that acted."""
        return tuple(self._of_agents(stop)) if self.each else (self.rollout(stop),)

    def _of_agents(self, stop: str) -> Iterator[Rollout]:
        """A row of each agent that acted, as long as it was there: one that ended before the others ends its own row."""
        number = 0
        for agent in range(self.stream.agents):
            said = [one for moments in self.each if (one := moments[agent]) is not None]
            if not said:
                continue
            own = replace(
                self,
                observations=[self.observations[0][agent], *(one.observation for one in said)],
                actions=[action_NA[agent] for action_NA in self.actions[: len(said)]],
                behavior=[behavior_N[agent] for behavior_N in self.behavior[: len(said)]],
                versions=self.versions[: len(said)],
                rewards=[one.reward for one in said],
                costs=[one.cost for one in said if one.cost is not None],
                each=[],
            )
            last, ends = said[-1], "truncated" if said[-1].truncated else stop
            row = own.rollout("terminated" if last.terminated else ends)
            yield replace(row, row=number, scores=self.scores(stop))
            number += 1

    def rollout(self, stop: str) -> Rollout:
        seen = torch.from_numpy(np.stack(self.observations))
        return Rollout(
            task=self.request.task,
            sample=self.request.sample,
            row=self.request.row,
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
            cost_S=torch.tensor(self.costs) if self.costs else None,
            stop=stop,
            sampling=self.request.sampling,
            scores=self.scores(stop),
        )

    def scores(self, stop: str) -> dict[str, float]:
        """Of a whole episode, where it ends here."""
        if stop not in ENDS:
            return {}
        said = {} if self.stream.success is None else {SUCCESS: float(self.stream.success)}
        said |= {} if self.stream.cost is None else {COST: self.stream.cost}
        trace = self.stream.trace
        said |= {RETURN: self.stream.earned} if self.segment and (trace is None or not trace.stopped) else {}
        return said | ({} if trace is None else {STOPPED: float(trace.stopped)})


def of_plays(x_BX: Tensor, count_P: Sequence[int]) -> Tensor | list[Tensor]:
    """What belongs to each play: one row, or those of its agents, of which there are so many. Without any the tensor itself."""
    if not any(count_P):
        return x_BX
    parts = x_BX.split([count or 1 for count in count_P])
    return [part if count else part[0] for part, count in zip(parts, count_P, strict=True)]


def numbers(logprobs: Tensor | list[Tensor]) -> list[Any]:
    """Of each play its number, or those of its agents; a tensor's at once, as one by one takes longer than a layer."""
    return logprobs.tolist() if isinstance(logprobs, Tensor) else [logprob_N.tolist() for logprob_N in logprobs]
