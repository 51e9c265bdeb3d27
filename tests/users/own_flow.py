"""Curricula and budgets with one mistake each."""

from dataclasses import dataclass

from gimbal.dataflow.base import (
    AbstractBudget,
    AbstractBudgetSpec,
    AbstractCurriculum,
    AbstractCurriculumSpec,
    AbstractFilter,
    Plan,
)
from gimbal.records import Drop


class Live(AbstractCurriculum):
    def __init__(self, tasks, wrong):
        self.tasks, self.wrong, self.at = tasks, wrong, 0

    def next(self):
        self.at += 1
        return self.tasks[self.at % len(self.tasks)]

    def metrics(self):
        return {"level": "high"} if self.wrong == "metrics" else {"at": self.at}

    def state_dict(self):
        broken = self.wrong == "state" or (self.wrong == "later" and self.at > 6)
        return {"at": self.at, **({"rule": lambda: 1} if broken else {})}

    def load_state_dict(self, state):
        self.at = state["at"]


@dataclass(frozen=True, kw_only=True)
class Mine(AbstractCurriculumSpec):
    wrong: str = ""

    def start(self, tasks, seed):
        return None if self.wrong == "start" else Live(tasks, self.wrong)


@dataclass(frozen=True, kw_only=True)
class Narrow(AbstractCurriculumSpec):
    def start(self, tasks):
        return Live(tasks, "")


class LiveBudget(AbstractBudget):
    def __init__(self, rollouts, more):
        self.rollouts, self.further = rollouts, more

    def plan(self, tasks):
        return [Plan(rollouts=self.rollouts, max_length=8) for _ in tasks]

    def more(self, begun):
        return [self.further for _ in begun]


@dataclass(frozen=True, kw_only=True)
class Spends(AbstractBudgetSpec):
    rollouts: int = 2
    more: object = 0

    def start(self, rollouts, max_length):
        return LiveBudget(self.rollouts, self.more)


@dataclass(frozen=True, kw_only=True)
class OneLeft(AbstractFilter):
    def __call__(self, group):
        return group.keep(group.rollouts[:1])


@dataclass(frozen=True, kw_only=True)
class Never(AbstractFilter):
    def __call__(self, group):
        return Drop("on_sundays")
