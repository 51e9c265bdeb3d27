"""Tokens of prompts and texts of tokens that an engine comes by again and again, as in games: each is computed once."""

from __future__ import annotations

from gimbal.policies.token import TokenPolicy
from gimbal.records import Task


class Texts:
    """``encode`` and ``decode`` are the policy's; kept are plain prompts, until ``forget``, and texts of single tokens."""

    def __init__(self, policy: TokenPolicy) -> None:
        self.policy = policy
        self._prompts: dict[str, list[int]] = {}
        self._words: dict[int, str] = {}

    def forget(self) -> None:
        self._prompts.clear()

    def encode(self, task: Task) -> list[int]:
        if task.columns:
            return self.policy.encode_task(task)
        if (ids := self._prompts.get(task.prompt)) is None:
            ids = self._prompts[task.prompt] = self.policy.encode_task(task)
        return ids

    def decode(self, ids: list[int]) -> str:
        if len(ids) != 1:
            return self.policy.decode(ids)
        if (text := self._words.get(ids[0])) is None:
            text = self._words[ids[0]] = self.policy.decode(ids)
        return text
