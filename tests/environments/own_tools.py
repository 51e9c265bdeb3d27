"""Functions as somebody writes them who wants a tool."""

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
