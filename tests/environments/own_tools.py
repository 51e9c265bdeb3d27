"""Functions as somebody writes them who wants a tool."""

import json
import urllib.request
from typing import Literal

CALLS: list[tuple] = []


def search(query: str, limit: int = 5) -> str:
    """Find pages.

    The best come first.

    Args:
        query: what to look for,
            in plain words
        limit (int): how many at most
    """
    CALLS.append((query, limit))
    return f"{limit} pages of {query}"


def add(a: int, b: float = 0.5, *, how: Literal["up", "down"] = "up", more: list[int] | None = None) -> dict:
    """Adds.

    :param a: the first
    :param int b: the second
    :return: both
    """
    return {"sum": a + b, "how": how, "more": more}


async def late(day: str) -> str:
    return f"late on {day}"


def breaks(why: str) -> str:
    raise OSError(why)


def odd(x: int) -> object:
    return {1, 2}


def ask_once(base_url: str, task: dict) -> float:
    """A whole agent: it asks, and earns 1 where the answer holds a yes."""
    body = json.dumps({"messages": [{"role": "user", "content": task["prompt"]}]}).encode()
    request = urllib.request.Request(f"{base_url}/chat/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return float("yes" in json.load(answer)["choices"][0]["message"]["content"])
