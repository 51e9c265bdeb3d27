"""Common base of budgets with different numbers of rollouts per group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gimbal.dataflow.base import AbstractBudget, Progress
from gimbal.dataflow.success import SuccessModel, outcomes
from gimbal.records import Group


class AbstractSizedBudget(AbstractBudget):
    """Reports how many rollouts the groups observed since the last step came to hold."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups = self.rollouts = self.largest = 0

    def observe(self, group: Group) -> None:
        self.groups += 1
        self.rollouts += len(group.episodes)
        self.largest = max(self.largest, len(group.episodes))

    def step(self, progress: Progress) -> None:
        self.groups = self.rollouts = self.largest = 0

    def metrics(self) -> dict[str, float]:
        """``size``: rollouts a group, in the mean. ``largest``: of the largest group."""
        if not self.groups:
            return {}
        return {f"{self.name}/size": self.rollouts / self.groups, f"{self.name}/largest": float(self.largest)}

    def state_dict(self) -> dict[str, Any]:
        return {"groups": self.groups, "rollouts": self.rollouts, "largest": self.largest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.groups, self.rollouts, self.largest = state["groups"], state["rollouts"], state["largest"]


class AbstractSuccessBudget(AbstractSizedBudget):
    """One that goes by a ``SuccessModel`` of the tasks; ``reward`` is the name of the reward that it is about, or ""."""

    def __init__(self, name: str, *, model: SuccessModel, reward: str) -> None:
        super().__init__(name)
        self.model, self.reward = model, reward

    def observe(self, group: Group) -> None:
        super().observe(group)
        self.model.visit(group.task.id, outcomes(group, self.reward))

    def step(self, progress: Progress) -> None:
        super().step(progress)
        self.model.step()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "model": self.model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.model.load_state_dict(state["model"])
