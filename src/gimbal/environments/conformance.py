"""Checks that every environment must pass before it may train: the oracle scores best, doing nothing scores worst, and the same seed
and actions give the same bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gimbal.config.own import learnable
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Moment
from gimbal.records import Task

Policy = Callable[[Task, Any], Any]  # the task and the newest observation, to an action


def earned(task: Task, moments: Sequence[Moment]) -> float:
    """The sum of its rewards."""
    return sum(moment.reward for moment in moments)


@dataclass(frozen=True, kw_only=True)
class Conformance:
    """An environment, tasks of it, a policy that solves them and one that does nothing of use.

    ``oracle`` scores at least ``best`` on each task and ``null`` at most ``worst``. ``score`` reads the moments of an episode, which
    takes ``longest`` actions at most.
    """

    spec: AbstractEnvironmentSpec
    tasks: Sequence[Task]
    oracle: Policy
    null: Policy
    best: float = 1.0
    worst: float = 0.0
    score: Callable[[Task, Sequence[Moment]], float] = earned
    longest: int = 1000

    def check(self) -> None:
        """Raises ValueError with one sentence for the first failed check."""
        for task in self.tasks:
            for name, policy in (("oracle", self.oracle), ("null policy", self.null)):
                actions, moments = self._play(task, policy, name)
                scored = self.score(task, moments)
                if name == "oracle" and not scored >= self.best - 1e-9:
                    raise self._wrong(task, f"the oracle scores {scored:g}, and {self.best:g} is to be had")
                if name == "null policy" and not scored <= self.worst + 1e-9:
                    raise self._wrong(
                        task, f"the null policy scores {scored:g}, and {self.worst:g} is all that it is worth"
                    )
                self._repeats(task, actions, moments)
                self._forks(task, actions, moments)

    def _play(self, task: Task, policy: Policy, name: str) -> tuple[list[Any], list[Moment]]:
        """Its actions, and the moments from the first observation on."""
        live = self.spec.open()
        actions, moments = [], [Moment(observation=live.reset(task, task.seed))]
        while not moments[-1].ended:
            if len(actions) == self.longest:
                raise self._wrong(task, f"the {name} has not come to an end after {self.longest:,} actions")
            action = policy(task, moments[-1].observation)
            if action is None:  # it has done what it wanted; a tool never ends by itself
                break
            actions.append(action)
            moments.append(self._step(live, task, action))
        live.close()
        return actions, moments

    def _step(self, live: AbstractEnvironment, task: Task, action: Any) -> Moment:
        moment = live.step(action)
        if not isinstance(moment, Moment):
            raise self._wrong(task, f"a step returns a {type(moment).__name__}, not a Moment")
        if moment.error or learnable(moment.reward) is None:
            raise self._wrong(
                task, f"a step is answered with the error {moment.error!r} and the reward {moment.reward}"
            )
        return moment

    def _repeats(self, task: Task, actions: Sequence[Any], moments: Sequence[Moment]) -> None:
        """Another one, the same one begun again, and one that stood beside them at another task."""
        again, beside = self.spec.open(), self.spec.open()
        beside.reset(self.tasks[0], self.tasks[0].seed)
        used = "one that was reset for another task before"
        for live, name in ((again, "another environment"), (again, "the same one, reset,"), (beside, used)):
            seen = [Moment(observation=live.reset(task, task.seed))]
            seen += [self._step(live, task, action) for action in actions]
            for at, (one, other) in enumerate(zip(moments, seen, strict=True)):
                if written(one) != written(other):
                    raise self._wrong(task, f"after the same seed and {at} actions {name} answers otherwise")
        again.close()
        beside.close()

    def _forks(self, task: Task, actions: Sequence[Any], moments: Sequence[Moment]) -> None:
        """A copy after each half of the actions goes on alike, and moves nothing of what it was copied from."""
        live = self.spec.open()
        live.reset(task, task.seed)
        half = len(actions) // 2
        for action in actions[:half]:
            live.step(action)
        try:
            other = live.fork()
        except NotImplementedError:  # it is brought back by its seed and its actions then
            return
        for one in (other, live):
            for at, action in enumerate(actions[half:], half + 1):
                if written(self._step(one, task, action)) != written(moments[at]):
                    raise self._wrong(task, f"a copy made after {half} actions and what it is of do not go on alike")

    def _wrong(self, task: Task, what: str) -> ValueError:
        return ValueError(f"{type(self.spec).__name__}, task {task.id}: {what}")


def written(moment: Moment) -> bytes:
    """All of a moment as bytes: arrays by what they hold."""
    seen = moment.observation
    shown = (seen.dtype.str, seen.shape, seen.tobytes()) if hasattr(seen, "tobytes") else repr(seen)
    return pickle.dumps((shown, moment.reward, moment.terminated, moment.truncated))
