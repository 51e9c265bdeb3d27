"""Dotted paths into nested frozen dataclasses, tuples and mappings: ``shaping.0.strength``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any


def get_at(root: Any, path: str) -> Any:
    """The value at the path; KeyError names the first part that is not there."""
    here = root
    for part in path.split("."):
        here = children(here)[part]
    return here


def replace_at(root: Any, path: str, value: Any) -> Any:
    """A copy of the root whose value at the path is another; everything off the path is shared."""
    head, _, rest = path.partition(".")
    child = children(root)[head]
    new = replace_at(child, rest, value) if rest else value
    if is_dataclass(root) and not isinstance(root, type):
        return replace(root, **{head: new})
    if isinstance(root, tuple):
        return tuple(new if str(i) == head else item for i, item in enumerate(root))
    return children(root) | {head: new}


def walk(root: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything in the root, at any depth, each with its path."""
    for name, child in children(root).items():
        here = f"{path}.{name}" if path else name
        yield here, child
        yield from walk(child, here)


def children(here: Any) -> dict[str, Any]:
    """What is directly in it, by name: the fields that it is made of, its items or its values."""
    if is_dataclass(here) and not isinstance(here, type):
        return {item.name: getattr(here, item.name) for item in fields(here) if item.init}
    if isinstance(here, tuple):
        return {str(i): item for i, item in enumerate(here)}
    if isinstance(here, Mapping):
        return {str(key): item for key, item in here.items()}
    return {}
