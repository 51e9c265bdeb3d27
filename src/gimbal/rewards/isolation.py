"""Runs the code of rewards in the sandboxed process for untrusted code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gimbal.sandbox.worker import Target, Worker


class RewardError(ValueError):
    """A reward that cannot be loaded or does not give scores. It ends the run with a message."""


def worker(name: str, make: Callable[[], tuple[Target, list[str]]], **options: Any) -> Worker:
    """The process of a reward of this name; the options are those of Worker."""
    return Worker(f"reward {name}", make, raises=RewardError, **options)
