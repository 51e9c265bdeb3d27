"""Converts a row of a dataset to a task: the prompt column, the answer column, and what a chat needs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gimbal.environments import images
from gimbal.environments.tables import MISSING, Row, at, parsed
from gimbal.environments.written import filled, written
from gimbal.records import Task, is_chat

ANSWER = "answer"
# What TRL's and verl's datasets call it; a reward gets every column under its own name besides.
ANSWERS = (ANSWER, "solution", "ground_truth", "reward_model.ground_truth")
PROMPTS = ("question", "problem", "messages", "instruction", "input", "query", "text")  # guessed at in a refusal only


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How rows are read. See ``Dataset`` for the fields."""

    prompt: str = "prompt"
    answer: str = ANSWER
    answer_after: str = ""
    system: str = ""
    chat: bool = False
    beside: Path | None = None  # where relative paths of images begin
    # False while rows are only looked at: images inside of a file are then not written to the cache.
    keep_images: bool = True

    def task(self, row: Row) -> Task:
        value, where, made_id = row
        if not isinstance(value, Mapping):
            raise ValueError(f"{where}: expected an object, got {type(value).__name__}")
        own, value = value, written(value, self.prompt, where)
        asked = at(value, self.prompt)
        if asked is MISSING:
            raise ValueError(f"{where}: there is no column {self.prompt!r}; columns: {_listed(own)}")
        if "messages" in value and self.prompt != "messages":
            raise ValueError(
                f"{where}: there are a prompt and the column messages, and a policy is asked one of them: tasks.prompt=messages "
                "takes the chat; else call the column something else"
            )
        columns = {key: item for key, item in value.items() if key != self.prompt}
        if not isinstance(asked, str) and is_chat(asked):
            if silent := [one["role"] for one in asked if one["content"] is None and one["role"] != "assistant"]:
                # A template would write an empty turn, and the policy would be asked nothing.
                raise ValueError(f"{where}: a message of {silent[0]} in {self.prompt!r} has no content; expected text")
            asked = self._chat(asked)
        elif not isinstance(asked, str) or not asked:
            raise ValueError(
                f"{where}: {self.prompt!r} is {asked!r:.60}; expected text, or chat messages with role and content"
            )
        elif self.chat or self.system:
            asked = self._chat([{"role": "user", "content": asked}])
        if not isinstance(asked, str):
            columns["messages"] = asked
            if columns.get("tools") is not None:
                columns["tools"] = _tools(columns["tools"], where)
        columns |= images.columns(value, where, self.beside, keep=self.keep_images)
        found, right = self._answer(value, where)
        if self.answer_after or (found != ANSWER and ANSWER in value):
            columns[ANSWER] = right  # a reward's parameter `answer` is what was said to be the answer
        own_id = value.get("id")
        return Task(
            id=str(made_id if own_id is None else own_id),
            prompt=asked if isinstance(asked, str) else "",
            answer=None if right is None else str(right),
            source=str(value.get("data_source") or ""),
            columns=columns,
        )

    def _chat(self, messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """The messages behind the system prompt, unless they bring their own."""
        messages = [filled(message) for message in messages]
        if not self.system or messages[0]["role"] == "system":
            return messages
        return [{"role": "system", "content": self.system}, *messages]

    def _answer(self, row: Mapping[str, Any], where: str) -> tuple[str, Any]:
        """(The column that it stands in, the answer); None where the row has none."""
        for name in ANSWERS if self.answer == ANSWER else (self.answer,):
            right = at(row, name)
            if right is MISSING or right is None or (isinstance(right, float) and math.isnan(right)):
                continue
            if self.answer_after:
                _, mark, right = str(right).rpartition(self.answer_after)
                if not mark:
                    raise ValueError(
                        f"{where}: the answer in {name!r} has no {self.answer_after!r} (tasks.answer_after): {row_end(row, name)}"
                    )
                right = right.strip()
            return name, right
        return "", None


def row_end(row: Mapping[str, Any], name: str) -> str:
    """The last characters of a cell, in which a mark was looked for."""
    text = str(at(row, name))
    return repr(text if len(text) <= 60 else "..." + text[-60:])


def _listed(row: Mapping[str, Any]) -> str:
    near = next((name for name in PROMPTS if name in row), "NAME")
    return f"{', '.join(map(str, row)) or 'none'} (tasks.prompt={near} reads another one)"


def _tools(value: Any, where: str) -> list[Any]:
    """The function schemas that the chat template is given; a dataset may hold them as JSON in a text."""
    tools = parsed(value, f"{where}, column tools") if isinstance(value, str) else value
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) for tool in tools):
        raise ValueError(
            f"{where}: the column tools is {value!r:.60}; of a chat it is a list of OpenAI's function schemas, which the chat template "
            "is given, or is called something else"
        )
    return [filled(tool) for tool in tools]
