"""Rows that hold written answers, as TRL's trainers for SFT and DPO take them, in the columns that workflows.Demonstrated reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gimbal.environments.tables import MISSING, at
from gimbal.records import is_chat


def written(row: Mapping[str, Any], prompt: str, where: str) -> Mapping[str, Any]:
    """The row with ``completion``, and for a pair ``score``, from ``chosen`` and ``rejected``, or from the end of ``messages``.

    - ``chosen``, ``rejected``: two completions, scores 1 and 0. Where they are chats that hold the prompt too, it is what they share.
    - ``completion`` as a chat of one assistant message: its text.
    - ``messages`` that end with the assistant, in a row without a prompt: the last message is the completion. Other messages are the
      prompt of a row that has none.
    """
    there = at(row, prompt) is not MISSING
    if not there and prompt != "prompt":  # a column that the user named is not replaced
        return row
    if "completion" in row:
        return {**row, "completion": said} if (said := _said(row["completion"], 1)) is not None else row
    if "chosen" in row and "rejected" in row:
        return _pair(row, prompt, there, where)
    messages: Any = row.get("messages")
    if there or not is_chat(messages):
        return row
    rest = {key: value for key, value in row.items() if key != "messages"}
    if (said := _said(messages)) is not None and len(messages) > 1:
        return {**rest, prompt: list(messages[:-1]), "completion": said}
    if messages[-1]["role"] == "system":
        raise ValueError(
            f"{where}: the chat in 'messages' ends with a system message, so nothing is asked: end it with a user's message, or with "
            "an assistant's that is the answer to learn"
        )
    return row if messages[-1]["role"] == "assistant" else {**rest, prompt: messages}


def _pair(row: Mapping[str, Any], prompt: str, there: bool, where: str) -> Mapping[str, Any]:
    sides = [row["chosen"], row["rejected"]]
    length = 1 if there else None
    texts = [side if isinstance(side, str) else _said(side, length) for side in sides]
    if None in texts:
        expected = "texts, or chats of one assistant message" if there else "chats that end with the assistant"
        raise ValueError(f"{where}: chosen and rejected are {sides[0]!r:.60} and {sides[1]!r:.60}; expected {expected}")
    made: dict[str, Any] = {"completion": texts, "score": [1.0, 0.0]}
    if not there:
        asked, other = (None if isinstance(side, str) else list(side[:-1]) for side in sides)
        if not asked or asked != other:
            raise ValueError(
                f"{where}: without a column {prompt!r}, chosen and rejected are chats that differ in the last message only"
            )
        made[prompt] = asked
    return {**row, **made}


def _said(value: Any, length: int | None = None) -> str | None:
    """The text of an assistant message at the end of a chat (of so many messages), else None."""
    if not isinstance(value, Sequence) or not is_chat(value) or length not in (None, len(value)):
        return None
    last = value[-1]
    return last["content"] if last["role"] == "assistant" and isinstance(last["content"], str) else None
