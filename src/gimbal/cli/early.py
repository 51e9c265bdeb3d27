"""Refusals before the slow imports; the same for a dry run and a real one."""

from __future__ import annotations

import ast
import errno
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gimbal.cli.words import Arguments


def check(arguments: Arguments) -> None:
    """Refuse flags that make no sense, and files and recipes that do not exist."""
    from gimbal import recipes
    from gimbal.cli.seeds import at_once, numbers

    if "seeds" in arguments.flags:
        numbers(arguments.flags["seeds"])
    at_once(arguments.flags.get("jobs", "1"))
    if "runs" in arguments.flags or "dry-run" in arguments.flags:
        writable(Path(arguments.flags.get("runs", "runs")))
    files(arguments.overrides)
    for recipe in arguments.words:
        if ":" not in recipe and not recipe.endswith(recipes.FILES):
            recipes.known(recipe)


def writable(runs: Path) -> None:
    """Refuse a runs directory that does not exist and cannot be created."""
    above = next(place for place in (runs.absolute(), *runs.absolute().parents) if os.path.lexists(place))
    try:
        Path(tempfile.mkdtemp(prefix=".gimbal", dir=above)).rmdir()
    except OSError as error:
        why = (
            f"{above} is not a directory"
            if error.errno == errno.ENOTDIR
            else f"{above}: {(error.strerror or '').lower()}"
        )
        raise ValueError(
            f"--runs is {runs}, but runs cannot be written there ({why}); give another directory"
        ) from error


def files(overrides: Mapping[str, str]) -> None:
    """Refuse missing data files and functions that their file lacks; everything else is checked when it is read."""
    from gimbal.config.aliases import names_of
    from gimbal.config.expected import DATA_FILES, ROWS, at_commas
    from gimbal.config.parts import WEIGHTED

    for key in ROWS:
        for name in at_commas(overrides.get(key, "")):
            plain = name.endswith(DATA_FILES) and not any(mark in name for mark in "*?[]{}():'\"")
            if plain and not Path(name).expanduser().exists():
                raise ValueError(f"there is no file {name}")
    for key in names_of("rewards"):
        for name in at_commas(overrides.get(key, "")):
            if (found := WEIGHTED.fullmatch(name)) and ".py:" in name:
                _function(found[1])


def _function(reference: str) -> None:
    from gimbal.config import nearest

    place, _, name = reference.rpartition(":")
    file = Path(place).expanduser()
    if not file.is_file():
        raise ValueError(f"reward {reference}: there is no file {file.resolve()}")
    source = file.read_text(encoding="utf-8", errors="replace")
    # It may exist: importing will show.
    if re.search(rf"\b{name}\b", source) or "import *" in source or "globals" in source:
        return
    try:
        there = [
            node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
    except (SyntaxError, ValueError):  # importing reports that better
        return
    raise ValueError(f"{place} has no {name}{nearest(name, there)}")
