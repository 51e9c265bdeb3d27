"""From the words of a command line, a file or Python to a checked run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gimbal.config import Text, override
from gimbal.environments.jsonl import Jsonl, Rows
from gimbal.environments.reasoning import ReasoningGym
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.function import Function
from gimbal.runtime import compose
from gimbal.runtime.run import Run

_NAMES = {"reward": "rewards", "reward_funcs": "rewards", "train_dataset": "tasks", "dataset": "tasks"}


def configured(run: Run, overrides: Mapping[str, Any], notice: Callable[[str], None]) -> Run:
    """The run with these overrides, checked as a whole: two parts that consume the same ratio are refused here.

    ``reward`` may be a function, several, or ``file.py:function``; ``tasks`` a JSONL file or a list of dicts.
    """
    changes: dict[str, Any] = {}
    for key, value in overrides.items():
        ours = _NAMES.get(key, key)
        if ours in changes:
            raise ValueError(f"{key} sets {ours}, which is given already; give one of them")
        changes[ours] = value
    if "rewards" in changes:
        changes["rewards"] = _rewards(changes["rewards"])
    if "tasks" in changes:
        changes["tasks"] = _tasks(changes["tasks"])
        if run.held_out is not None and not any(key.partition(".")[0] == "held_out" for key in changes):
            changes["held_out"] = None
            notice("other tasks, so no exam: the recipe's is about its own; held_out=HeldOut(tasks=...) sets one")
    if (named := str(changes.get("runtime", "")).lower()) in ("local", "ray"):
        changes["runtime"] = Text(f"{named.capitalize()}()")
    recipe, run = run, override(run, changes, notice)
    run = _apart(recipe, run, changes)
    compose.check(run)
    return run


def _apart(recipe: Run, run: Run, changes: Mapping[str, Any]) -> Run:
    """Where the exam was changed, training leaves the new exam's questions out, as it did the old one's."""
    exam = run.held_out.tasks if run.held_out is not None else None
    before = recipe.held_out.tasks if recipe.held_out is not None else None
    if exam == before or not isinstance(run.tasks, ReasoningGym) or not isinstance(exam, ReasoningGym):
        return run
    if any(key.startswith("tasks.exclude") for key in changes):
        return run
    return replace(run, tasks=replace(run.tasks, exclude=replace(exam, exclude=None)))


def _rewards(value: Any) -> Any:
    """Functions, and references to functions, as rewards; anything else as it is."""
    if isinstance(value, Text):
        return (Function(function=str(value)),) if ":" in value and "(" not in value else value
    many = value if isinstance(value, list | tuple) else (value,)
    return tuple(
        Function(function=one) if callable(one) and not isinstance(one, AbstractReward) else one for one in many
    )


def _tasks(value: Any) -> Any:
    if isinstance(value, Path) or (isinstance(value, str) and value.endswith((".jsonl", ".json"))):
        return Jsonl(path=str(value))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return Rows(rows=value)
    return value
