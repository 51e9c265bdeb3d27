"""A black-box agent with tools for the benchmarks: OpenAI's client, streaming, calls and their answers."""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

from openai import OpenAI

TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "description": said, "parameters": {"type": "object", "properties": {}}},
    }
    for name, said in (("add", "Adds."), ("look", "Looks something up."))
]


def add(a: int = 0, b: int = 0) -> str:
    """Adds."""
    return f"{a} + {b} = {a + b}, as\tfar as I know"


def look(what: str = "") -> str:
    """Looks something up."""
    return f'"{what}" is on page {len(what)};  see <there>'


def said(client: Any, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """One streamed answer, put together as clients do."""
    text, calls = "", dict[int, dict[str, str]]()
    for piece in client.chat.completions.create(model="policy", messages=messages, tools=TOOLS, stream=True):
        for choice in piece.choices:
            text += choice.delta.content or ""
            for part in choice.delta.tool_calls or ():
                held = calls.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
                held["id"] += part.id or ""
                held["name"] += part.function.name or ""
                held["arguments"] += part.function.arguments or ""
    made = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in calls.values()
    ]
    return {"role": "assistant", "content": text or None, **({"tool_calls": made} if made else {})}


def solve(base_url: str, task: dict[str, Any]) -> float:
    """At most five turns; it ends where no tool is called."""
    client, messages = OpenAI(base_url=base_url, api_key="none", max_retries=0), list(task["messages"])
    for _ in range(5):
        message = said(client, messages)
        messages.append(message)
        if not message.get("tool_calls"):
            return 1.0
        for call in message["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": answered(call["function"])})
    return 0.0


def answered(function: dict[str, str]) -> str:
    arguments = json.loads(function["arguments"])
    try:
        return {"add": add, "look": look}[function["name"]](**arguments)
    except (KeyError, TypeError) as error:  # the model's call, which it is told
        return f"error: {type(error).__name__}"


def patient(base_url: str, task: dict[str, Any]) -> float:
    """A turn for each of task["seconds"], and a tool that takes that long. Plain HTTP: a client takes processor time."""
    messages = [{"role": "user", "content": task["prompt"]}]
    for seconds in task["seconds"]:
        body = json.dumps({"messages": messages, "max_tokens": 8}).encode()
        request = urllib.request.Request(f"{base_url}/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            said = json.load(answer)["choices"][0]["message"]["content"]
        time.sleep(seconds)
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "more"}]
    return said.count("1") / 8
