"""Rows that hold written answers, as TRL's trainers for SFT and DPO take them, in the columns that workflows.Demonstrated reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gimbal.chats import BESIDE, is_chat
from gimbal.environments.tables import MISSING, at

CHATS = ("messages", "completion", "chosen", "rejected")  # columns that may be one, besides the prompt


def written(row: Mapping[str, Any], prompt: str, where: str) -> Mapping[str, Any]:
    """The row with ``completion``, and for a pair ``score``, from ``chosen`` and ``rejected``, or from the end of ``messages``.

    - ``chosen``, ``rejected``: two completions, scores 1 and 0. Where they are chats that hold the prompt too, it is what they share.
    - ``completion`` as a chat of one assistant message: its text; the message itself if it calls tools or thinks, which only the
      model's chat template can write.
    - ``messages`` that end with the assistant, in a row without a prompt: the last message is the completion. Other messages are the
      prompt of a row that has none.
    """
    row = {key: _complete(value) if key in (prompt, *CHATS) else value for key, value in row.items()}
    for key in CHATS:
        _called(row.get(key), f"{where}: {key}")
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
    if texts[0] == texts[1]:
        raise ValueError(
            f"{where}: chosen and rejected say the same, {texts[0]!r:.60}, so neither is better: take the row out of the data"
        )
    made: dict[str, Any] = {"completion": texts, "score": [1.0, 0.0]}
    if not there:
        asked, other = (None if isinstance(side, str) else list(side[:-1]) for side in sides)
        if not asked or asked != other:
            raise ValueError(
                f"{where}: without a column {prompt!r}, chosen and rejected are chats that differ in the last message only"
            )
        made[prompt] = asked
    return {**row, **made}


def _said(value: Any, length: int | None = None) -> str | Mapping[str, Any] | None:
    """What an assistant message at the end of a chat (of so many messages) says, else None: text, or a message with more than text."""
    if not isinstance(value, Sequence) or not is_chat(value) or length not in (None, len(value)):
        return None
    last = value[-1]
    content, more = _joined(last["content"]), {key: filled(last[key]) for key in BESIDE if last.get(key)}
    if last["role"] != "assistant" or not isinstance(content, str | None if more else str):
        return None
    return {"role": "assistant", "content": content or "", **more} if more else content


def _called(chat: Any, where: str) -> None:
    """ValueError unless each call in these messages names its function: a template would fail on it in the middle of a run."""
    for message in chat if isinstance(chat, list | tuple) else ():
        calls = message.get("tool_calls") if isinstance(message, Mapping) else None
        whole = isinstance(calls, list | tuple) and all(isinstance(call, Mapping) for call in calls)
        functions = [call.get("function") or call for call in calls] if calls and whole else []
        if calls and not (
            whole and all(isinstance(f, Mapping) and f.get("name") and isinstance(f["name"], str) for f in functions)
        ):
            raise ValueError(
                f"{where} has the tool_calls {calls!r:.60}; a list of objects is wanted, each with a function that has a name"
            )


def _joined(content: Any) -> Any:
    """Parts of text as one text."""
    parts = content if isinstance(content, list | tuple) else [None]
    if all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        return "".join(part["text"] for part in parts)
    return content


def _complete(value: Any) -> Any:
    """A chat whose messages that only call tools may leave out their content, as OpenAI's and TRL's do."""
    if not isinstance(value, list | tuple):
        return value
    return [
        {**one, "content": None} if isinstance(one, Mapping) and one.get("tool_calls") and "content" not in one else one
        for one in value
    ]


def filled(value: Any) -> Any:
    """Without keys that are None: Arrow gives every message the keys of all messages, and a template asks which are there."""
    if isinstance(value, Mapping):
        return {key: filled(item) for key, item in value.items() if item is not None or key == "content"}
    return [filled(item) for item in value] if isinstance(value, list | tuple) else value
