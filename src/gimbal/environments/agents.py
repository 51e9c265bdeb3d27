"""Live environments of several agents that act at once: each a row of its own, or all together as one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float, Shaped

from gimbal.config.own import told
from gimbal.environments.attributes import adjust, split
from gimbal.environments.base import Moment
from gimbal.environments.gym import AbstractActed, Environment
from gimbal.environments.opening import made
from gimbal.environments.parallel import TOGETHER, is_parallel
from gimbal.records import Task


class View(gymnasium.Env):
    """What one agent sees and does, which others answer."""

    def __init__(self, seen: Any, acts: Any) -> None:
        self.observation_space, self.action_space = seen, acts
        self.answer: tuple[Any, ...] = ()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.answer

    def step(self, action: Any) -> Any:
        return self.answer


class Agents(AbstractActed):
    """One live environment of ``agents`` agents that act at once (pettingzoo.ParallelEnv), for a policy that all of them share.

    A reset shows [agents, O], a step takes [agents, A]; its moment has one of each agent in ``each``, None of those that have ended
    before, whose rows of what is shown are 0. Its own reward and cost are the sums of theirs, it ends with the last agent, and is a
    success where each one says so.

    - Kinds of agents are told apart by their names up to the last number (adversary_0, agent_0): where there are several, the kind is
      appended to what is shown, one-hot. Shorter observations are filled up with zeros; of longer vectors of actions the first numbers
      are taken. Choices of different numbers are refused (``alike``), as no choice could stand for one that is not there.
    - One agent of one kind: what ``Environment`` shows, takes and answers, in one row.
    """

    instant = False

    def __init__(self, source: str, env: Any) -> None:
        self.source, self._env = source, env
        self.names: tuple[str, ...] = tuple(env.possible_agents)
        if not self.names or len(set(self.names)) < len(self.names) or not all(isinstance(n, str) for n in self.names):
            raise ValueError(
                f"{source} has possible_agents={told(env.possible_agents)}; the names of its agents are wanted, as different texts "
                "(a_0, a_1)"
            )
        self.agents = len(self.names)
        self.views = {name: View(env.observation_space(name), env.action_space(name)) for name in self.names}
        self.heads = {name: Environment(f"{source} ({name})", of=view) for name, view in self.views.items()}
        self._going = self._begun_with = frozenset[str]()
        kinds = list(dict.fromkeys(map(_kind, self.names)))
        marks = np.eye(len(kinds), dtype=np.float32) if len(kinds) > 1 else np.zeros((1, 0), np.float32)
        self._mark = {name: marks[kinds.index(_kind(name))] for name in self.names}
        self._widest = max(head.observations for head in self.heads.values())
        self.observations = self._widest + marks.shape[1]
        self.actions = max(head.actions for head in self.heads.values())
        self.interface = (
            f"{self.observations} observations, {self.actions} {'real actions' if self.real else 'choices'}"
        )

    @property
    def real(self) -> bool:
        return self.heads[self.names[0]].real

    @property
    def bound(self) -> float:
        return max(head.bound for head in self.heads.values())

    def render(self) -> Any:
        return self._env.render()

    def alike(self) -> Agents:
        """It, or ValueError where no policy could act for all of its agents."""
        does = {name: head.interface.partition(", ")[2] for name, head in self.heads.items()}
        if len({head.real for head in self.heads.values()}) > 1 or (not self.real and len(set(does.values())) > 1):
            raise ValueError(
                f"{self.source} has agents with different choices ({', '.join(f'{name}: {what}' for name, what in does.items())}), "
                f"which one policy cannot share: set {TOGETHER}=1 behind its @, for one decision of all of them, or give them one "
                "action_space"
            )
        return self

    def reset(self, task: Task, seed: int) -> Float[np.ndarray, "N O"]:
        seen = self._begun(task.seed)
        self._going = self._begun_with = frozenset(self._env.agents)
        if not self._going:
            raise ValueError(f"{self.source}.reset begins without an agent; at least one has to be in its agents")
        self._by_agent("reset", observations=seen)
        shown_NO = np.zeros((self.agents, self.observations), np.float32)
        for place, name in enumerate(self.names):
            if name in self._going:
                self.views[name].answer = seen[name], {}
                shown_NO[place] = self._filled(name, self.heads[name].reset(task, seed))
        return shown_NO

    def step(self, action: Shaped[np.ndarray, "N A"]) -> Moment:
        """The numbers of agents that have ended are not read."""
        own = zip(self.names, action, strict=True)
        acts = {name: act_A[: self.heads[name].actions] for name, act_A in own if name in self._going}
        answer = self._env.step({name: self.heads[name].taken(act_A) for name, act_A in acts.items()})
        if not isinstance(answer, tuple | list) or len(answer) != 5:
            raise ValueError(
                f"{self.source}.step returned {told(answer)}; it must return (observations, rewards, terminations, truncations, "
                "infos), each by agent"
            )
        seen, paid, ended, cut, infos = answer
        self._by_agent("step", observations=seen, rewards=paid, terminations=ended, truncations=cut)
        if joined := set(self._env.agents) - self._begun_with:  # one that has ended may still be named there
            raise ValueError(
                f"{self.source}.step let {min(joined)} join; only agents that are there from the reset on are supported: let it be "
                "there, and see zeros until then"
            )
        each: list[Moment | None] = []
        for name in self.names:
            if name not in acts:
                each.append(None)
                continue
            info = infos.get(name, {}) if isinstance(infos, Mapping) else {}
            self.views[name].answer = seen[name], paid[name], ended[name], cut[name], info
            one = self.heads[name].step(acts[name])
            each.append(replace(one, observation=self._filled(name, one.observation)))
        return self._all(each)

    def _all(self, each: list[Moment | None]) -> Moment:
        """What all are answered at once."""
        there = [one for one in each if one is not None]
        self._going = frozenset(name for name, one in zip(self.names, each, strict=True) if one and not one.ended)
        blank_O = np.zeros(self.observations, np.float32)
        succeeded = [one.success for one in there if one.success is not None]
        paid = [one.cost for one in there if one.cost is not None]
        over = not self._going
        return Moment(
            observation=np.stack([blank_O if one is None else one.observation for one in each]),
            reward=sum(one.reward for one in there),
            terminated=over and all(one.terminated for one in there),
            truncated=over and not all(one.terminated for one in there),
            success=all(succeeded) if succeeded else None,
            cost=sum(paid) if paid else None,
            each=tuple(each),
        )

    def _filled(self, name: str, seen: Float[np.ndarray, " o"]) -> Float[np.ndarray, " O"]:
        return np.concatenate([seen, np.zeros(self._widest - len(seen), np.float32), self._mark[name]])

    def _by_agent(self, call: str, **said: Any) -> None:
        """ValueError unless all of this is told of each agent that acts."""
        for what, of_each in said.items():
            if not isinstance(of_each, Mapping) or (lacking := self._going - of_each.keys()):
                wrong = told(of_each) if not isinstance(of_each, Mapping) else f"none of {min(lacking)}"
                raise ValueError(
                    f"{self.source}.{call} returned {wrong} as {what}; a dict is wanted with those of each agent that acts"
                )


class AllAgents(gymnasium.Env):
    """All agents as one: what they see, one after another, and what they do, in one action. It earns what they earn in all."""

    def __init__(self, agents: Agents) -> None:
        self.agents, spaces = agents, gymnasium.spaces
        seen = agents.agents * agents.observations
        self.observation_space = spaces.Box(-np.inf, np.inf, (seen,), np.float32)
        heads = [agents.heads[name] for name in agents.names]
        if all(head.real for head in heads):
            low, high = (np.concatenate([head.limits[side] for head in heads]).astype(np.float32) for side in (0, 1))
            self.action_space = spaces.Box(low, high)
        elif not any(head.real for head in heads):
            self.action_space = spaces.MultiDiscrete([head.actions for head in heads])
        else:
            raise ValueError(
                f"{agents.source} has agents that take vectors and agents that choose, and a policy does one or the other: give them "
                "action spaces of one kind"
            )
        self._cuts = np.cumsum([head.actions for head in heads])[:-1] if heads[0].real else np.arange(1, len(heads))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.agents.reset(Task(id=TOGETHER, seed=seed or 0), 0).reshape(-1), {}

    def step(self, action: Any) -> Any:
        own = np.split(np.asarray(action), self._cuts)
        most = max(map(len, own))
        moment = self.agents.step(np.stack([np.pad(act_A, (0, most - len(act_A))) for act_A in own]))
        said = {"is_success": moment.success, "cost": moment.cost}
        info = {name: value for name, value in said.items() if value is not None}
        return moment.observation.reshape(-1), moment.reward, moment.terminated, moment.truncated, info

    def render(self) -> Any:
        return self.agents.render()

    def close(self) -> None:
        self.agents.close()


def acted_in(source: str) -> AbstractActed:
    """A live environment of this name: of one agent, or of several, each a row of its own."""
    plain, values = split(source)
    env = made(plain, {}, values)
    if is_parallel(env):
        return Environment(source, of=together(source, env)) if values.get(TOGETHER) else Agents(source, env).alike()
    adjust(env, values, source)
    return Environment(source, of=env)


def agents_in(source: str) -> int:
    """How many agents have rows of their own in the environment of this name. What gymnasium registers has one, and is not opened."""
    if split(source)[0] in gymnasium.registry:
        return 1
    with closing(acted_in(source)) as world:
        return max(1, world.agents)


def together(source: str, env: Any) -> AllAgents:
    """All of its agents as one, where its name says so."""
    if not split(source)[1].get(TOGETHER):
        raise ValueError(
            f"{source} is of several agents, each in a row of its own, and here one decision is taken for all of them: name it with "
            f"{TOGETHER}=1 behind its @, as in mpe2.simple_spread_v3@{TOGETHER}=1, in training too"
        )
    return AllAgents(Agents(source, env))


def _kind(name: str) -> str:
    """adversary_0 -> adversary."""
    stem, _, number = name.rpartition("_")
    return stem if number.isdigit() else name
