"""How many rollouts groups came to hold, for budgets that do not give each the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gimbal.records import Group


class Sizes:
    """Of the groups observed since the last step."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups = self.rollouts = self.largest = 0

    def add(self, group: Group) -> None:
        self.groups += 1
        self.rollouts += len(group.episodes)
        self.largest = max(self.largest, len(group.episodes))

    def step(self) -> None:
        self.groups = self.rollouts = self.largest = 0

    def metrics(self) -> dict[str, float]:
        if not self.groups:
            return {}
        return {f"{self.name}/size": self.rollouts / self.groups, f"{self.name}/largest": float(self.largest)}

    def state_dict(self) -> dict[str, Any]:
        return {"groups": self.groups, "rollouts": self.rollouts, "largest": self.largest}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.groups, self.rollouts, self.largest = state["groups"], state["rollouts"], state["largest"]
