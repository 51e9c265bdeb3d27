"""Environments of several agents, as users of PettingZoo write them."""

from typing import ClassVar

import numpy as np
from gymnasium.spaces import Box, Discrete


class Walks:
    """Agents on a line. Agent i ends after ``LAST[i]`` steps, the last of them by a limit; its reward at step t is 10 i + t, and it
    sees its number, the step and its last action."""

    LAST: ClassVar = {"walker_0": 2, "walker_1": 4, "walker_2": 3}
    possible_agents: ClassVar = list(LAST)

    def __init__(self, cut="walker_1", wide=""):
        self.cut, self.wide = cut, wide

    def observation_space(self, agent):
        return Box(-100, 100, (4 if agent == self.wide else 3,), np.float32)

    def action_space(self, agent):
        return Discrete(4)

    def reset(self, seed=None, options=None):
        self.agents, self.steps = list(self.possible_agents), 0
        self.moves, self.drawn = dict.fromkeys(self.agents, -1), np.random.default_rng(seed).integers(100)
        return {agent: self.seen(agent) for agent in self.agents}, {agent: {} for agent in self.agents}

    def seen(self, agent):
        own = [float(self.possible_agents.index(agent)), float(self.steps), float(self.moves[agent])]
        return np.array(own + [7.0] * (agent == self.wide), np.float32)

    def step(self, actions):
        assert actions.keys() == set(self.agents), "those that have ended do not act"
        self.steps, acted = self.steps + 1, self.agents
        self.moves.update(actions)
        ends = {agent: self.steps == self.LAST[agent] for agent in acted}
        self.agents = [agent for agent in acted if not ends[agent]]
        return (
            {agent: self.seen(agent) for agent in acted},
            {agent: 10.0 * self.possible_agents.index(agent) + self.steps for agent in acted},
            {agent: ends[agent] and agent != self.cut for agent in acted},
            {agent: ends[agent] and agent == self.cut for agent in acted},
            {agent: {"cost": 1.0, "is_success": agent != "walker_2"} for agent in acted},
        )

    def close(self):
        pass


class Hunt(Walks):
    """Two kinds of agents with actions of different lengths, and observations too."""

    LAST: ClassVar = {"wolf_0": 3, "wolf_1": 3, "hare_0": 3}
    possible_agents: ClassVar = list(LAST)

    def __init__(self):
        super().__init__(cut="", wide="hare_0")

    def action_space(self, agent):
        return Box(-1, 1, (1 if agent == "hare_0" else 2,), np.float32)

    def seen(self, agent):
        self.moves = {name: float(np.sum(move)) for name, move in self.moves.items()}
        return super().seen(agent)


class Choosers(Walks):
    def action_space(self, agent):
        return Discrete(3 if agent == "walker_0" else 5, start=1)


class Joins(Walks):
    """A third one joins later."""

    def reset(self, seed=None, options=None):
        seen, infos = super().reset(seed)
        self.agents = self.agents[:2]
        return {agent: seen[agent] for agent in self.agents}, infos

    def step(self, actions):
        answer = super().step(actions)
        self.agents = [*self.agents, "walker_2"]
        return answer


class Lingers(Walks):
    """Those that have ended are still among its agents."""

    def step(self, actions):
        self.agents = list(actions)
        answer = super().step(actions)
        self.agents = list(self.possible_agents)
        return answer


class Nobody(Walks):
    def reset(self, seed=None, options=None):
        super().reset(seed)
        self.agents = []
        return {}, {}


class Numbered(Walks):
    LAST: ClassVar = {0: 2, 1: 4}
    possible_agents: ClassVar = list(LAST)


class Nameless(Walks):
    LAST: ClassVar = {}
    possible_agents: ClassVar = []


class Silent(Walks):
    """Says nothing of one agent's rewards."""

    def step(self, actions):
        seen, rewards, *rest = super().step(actions)
        del rewards["walker_1"]
        return seen, rewards, *rest


class One(Walks):
    LAST: ClassVar = {"walker_0": 3}
    possible_agents: ClassVar = list(LAST)


class Breaks(Walks):
    def step(self, actions):
        if self.steps == 1:
            raise RuntimeError("it broke")
        return super().step(actions)
