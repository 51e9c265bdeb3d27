"""The tokens of a task's prompt: ids, text, or a chat by its template. What the template or the model would leave out is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from gimbal.chats import BESIDE
from gimbal.policies.images import Images, images_of, placed
from gimbal.records import Task, is_chat

UNSAID = "(this is said by nobody)"
TEXT, IMAGE = "text", "image"  # types of the parts of a message


def encoded(task: Task, tokenizer: Any, images: Images | None, model: str) -> list[int]:
    """``model``: its name, for a refusal."""
    pictures = images_of(task)
    if pictures and images is None:
        raise ValueError(
            f"task {task.id} has images, and {model} is given none here: models of the type llava take them"
        )
    if (ids := task.columns.get("prompt_ids")) is not None:
        if not isinstance(ids, list | tuple) or not all(type(x) is int for x in ids):
            raise ValueError(
                f"the column prompt_ids of task {task.id} is {ids!r:.60}; it must be a list of integers, token ids"
            )
        return list(ids)
    messages = task.columns.get("messages")
    if messages is None and images is not None and pictures:
        return images.encode(task, task.prompt, special=True)
    if messages is None:
        return tokenizer.encode(task.prompt, add_special_tokens=True)
    if not is_chat(messages):
        raise ValueError(
            f"the column messages of task {task.id} is {messages!r:.60}; it must be a list of messages with role and content, "
            "or is called something else"
        )
    text = _chat(task, tokenizer, images, model)[0]
    return tokenizer.encode(text, add_special_tokens=False) if images is None else images.encode(task, text)


def _chat(task: Task, tokenizer: Any, images: Images | None, model: str) -> tuple[str, list[dict[str, Any]], Any]:
    """A task's chat as text, its messages as the template gets them, and what holds the template."""
    reader = tokenizer if images is None else images.processor
    if reader.chat_template is None:
        raise ValueError(f"task {task.id} is a chat, but this tokenizer has no chat template; give plain prompts")
    messages = task.columns["messages"]
    shown = [_shown(message, f"message {n + 1} of task {task.id}", images, model) for n, message in enumerate(messages)]
    shown = shown if images is None else placed(shown, len(images_of(task)))
    return rendered(reader, shown, task.columns.get("tools"), f"task {task.id}"), shown, reader


def answered(
    task: Task, said: Mapping[str, Any], tokenizer: Any, images: Images | None, model: str, ends: Sequence[int]
) -> tuple[list[int], int | None]:
    """The tokens that a model would have to write to say an assistant's message, and the one of ``ends`` that ends them in its chat
    template: what the template writes after its generation prompt. ValueError where that is not the whole message, or not what follows
    the prompt.
    """
    told, way = f"the answer of task {task.id}", "write the answer as text, as the model writes it"
    if not is_chat(task.columns.get("messages")):
        raise ValueError(
            f"{told} has {_beside(said)}, which only a chat template can write, and its prompt is text: give the prompt as messages "
            f"(tasks.chat=true makes them of texts), or {way}"
        )
    before, shown, reader = _chat(task, tokenizer, images, model)

    def whole(said: Mapping[str, Any]) -> str:
        messages, tools = [*shown, said], task.columns.get("tools")
        return reader.apply_chat_template(messages, tools=tools, add_generation_prompt=False, tokenize=False)

    said = for_template(said)
    try:
        text = whole(said)
    except Exception as error:  # a template may raise anything
        raise ValueError(f"the model's chat template refuses {told}: {error}; {way}") from error
    for what, less in _less(said):
        other = None
        with suppress(Exception):  # one that cannot do without it, whatever it raises, reads it
            other = whole(less)
        if other == text:
            raise ValueError(
                f"the model's chat template does not read {what}, and {told} has it: {way}, or leave it out"
            )
    if not text.startswith(before):
        raise ValueError(
            f"the model's chat template does not write {told} after its generation prompt, so what is learned would not be what is "
            f"sampled: {way}"
        )
    ids = tokenizer.encode(text[len(before) :], add_special_tokens=False)
    place = next((place for place, one in enumerate(ids) if one in ends), len(ids))
    if more := tokenizer.decode(ids[place + 1 :]).strip():
        raise ValueError(
            f"the model's chat template writes {more!r:.60} behind the end of {told}, which is not learned: {way}"
        )
    return ids[:place], next(iter(ids[place : place + 1]), None)


def _less(said: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each part of an assistant's message by name, and the message without it: a template has to write all of them."""
    for key in BESIDE:
        if key in said:
            yield key, {name: value for name, value in said.items() if name != key}
    if str(said.get("content") or "").strip():
        yield "content beside calls or thoughts", {**said, "content": ""}
    calls = list(said.get("tool_calls") or ())
    for place, call in enumerate(calls):
        function = call.get("function") or call
        if len(calls) > 1:
            yield f"call {place + 1} of tool_calls", {**said, "tool_calls": calls[:place] + calls[place + 1 :]}
        if function.get("arguments"):
            bare = {**function, "arguments": {}}
            one = {**call, "function": bare} if "function" in call else bare
            fewer = {**said, "tool_calls": [*calls[:place], one, *calls[place + 1 :]]}
            yield f"the arguments of call {place + 1} of tool_calls", fewer


def _beside(said: Mapping[str, Any]) -> str:
    return " and ".join(key for key in BESIDE if key in said)


def rendered(reader: Any, messages: Sequence[Mapping[str, Any]], tools: Any, where: str) -> str:
    """The chat as text. A ValueError where the template refuses it, or leaves out tools, calls of them, answers or a system prompt."""

    def text(messages: Sequence[Mapping[str, Any]], tools: Any) -> str:
        return reader.apply_chat_template(messages, tools=tools, add_generation_prompt=True, tokenize=False)

    try:
        whole = text(messages, tools)
    except Exception as error:
        # A template may raise anything, for roles that its model was not trained on first of all.
        told = f"the model's chat template refuses {where}, of the roles {', '.join(roles(messages))}: {error}"
        raise ValueError(told) from error
    for what, others, offered in _without(messages, tools):
        other = None
        with suppress(Exception):  # one that cannot do without it, whatever it raises, reads it
            other = text(others, offered)
        if other == whole:
            raise ValueError(
                f"the model's chat template does not read {what}, and {where} has them: the model would not see them; leave them "
                "out, or write them into the user's messages"
            )
    return whole


def continued(reader: Any, task: Task, told: Sequence[Mapping[str, Any]]) -> str:
    """What the chat template writes from the end of the assistant's text on where these messages follow it, up to where it answers
    again: the end of its turn first."""
    told = [for_template(message) for message in told]
    messages = [*map(for_template, task.columns["messages"]), {"role": "assistant", "content": UNSAID}, *told]
    try:
        whole = reader.apply_chat_template(
            messages, tools=task.columns.get("tools"), add_generation_prompt=True, tokenize=False
        )
    except Exception as error:
        # A template may raise anything, for roles that its model was not trained on first of all.
        raise ValueError(
            f"the model's chat template refuses task {task.id} with {', '.join(roles(told))} behind its answer: {error}"
        ) from error
    after = whole.rpartition(UNSAID)[2] if UNSAID in whole else ""
    for message in told:
        if str(message["content"]).strip() not in after:
            raise ValueError(
                f"the model's chat template does not read messages of the role {message['role']}, and task {task.id} is answered by "
                "one: the model would not see the answer; use a task of plain text, which is answered by text"
            )
    return after


def _without(messages: Sequence[Mapping[str, Any]], tools: Any) -> Iterator[tuple[str, list[dict[str, Any]], Any]]:
    """(What may be left out, the chat without it or with another in its place, the tools): another text, if the template reads it."""
    plain = [dict(message) for message in messages]
    if tools:
        yield "tools", plain, None
    silent = [{key: value for key, value in message.items() if key != "tool_calls"} for message in plain]
    if silent != plain:
        yield "tool_calls", silent, tools
    for role in dict.fromkeys(roles(messages)):
        if role not in ("user", "assistant"):
            changed = [{**m, "content": _more(m["content"])} if m["role"] == role else m for m in plain]
            yield f"messages of the role {role}", changed, tools


def _more(content: Any) -> Any:
    return f"{content} {UNSAID}" if isinstance(content, str) else [*content, {"type": TEXT, TEXT: UNSAID}]


def for_template(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message as templates read it: silence is an empty text, and the arguments of a call are an object, not its JSON."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = dict(call.get("function") or {}) if isinstance(call, Mapping) else {}
        # Not JSON, or an object already: the template gets it as it is.
        with suppress(ValueError, TypeError, RecursionError):
            function["arguments"] = json.loads(function.get("arguments") or "{}")
        calls.append({"type": "function", "function": function})
    return {**message, "content": message["content"] or "", **({"tool_calls": calls} if calls else {})}


def roles(messages: Any) -> tuple[str, ...]:
    """The speakers of a chat, in order; none if it is not a chat."""
    return tuple(message["role"] for message in messages) if is_chat(messages) else ()


def unshown(task: Task) -> str:
    """A doubt about a text that comes with tools, which only a chat shows; "" where there is none."""
    tools = task.columns.get("tools")
    schemas = isinstance(tools, list | tuple) and bool(tools) and all(isinstance(tool, Mapping) for tool in tools)
    if not (schemas or (isinstance(tools, str) and tools.lstrip().startswith("[{"))) or "messages" in task.columns:
        return ""
    return f"task {task.id} is a text with the column tools, which only a chat shows to the model: tasks.chat=true makes chats of texts"


def size(task: Task) -> int:
    """In bytes, no fewer than its tokens but for what a template adds."""
    told = [task.prompt or str(task.columns.get("messages", ""))]
    if (tools := task.columns.get("tools")) is not None:
        told.append(json.dumps(tools, indent=4, default=str))  # as widely as templates write them
    return sum(len(text.encode(errors="surrogatepass")) for text in told)


def _shown(message: Mapping[str, Any], where: str, images: Images | None, model: str) -> dict[str, Any]:
    """A message as its template gets it: of a text model, parts of text are joined, for its template takes a string."""
    content, known = message["content"], (TEXT,) if images is None else (TEXT, IMAGE)
    if isinstance(content, str) or (content is None and message["role"] == "assistant"):
        return for_template(message)
    parts = content if isinstance(content, list | tuple) else [None]
    kinds = [part.get("type") if isinstance(part, Mapping) else None for part in parts]
    if strange := [kind for kind in kinds if kind not in known]:
        what = f"a part of type {strange[0]}" if strange[0] else f"the content {content!r:.60}"
        raise ValueError(
            f"{where} has {what}; {model} is shown {' and '.join(known)} here, images by the column images"
        )
    if images is None:
        content = "".join(str(part.get("text", "")) for part in parts)
    return for_template({**message, "content": content})
