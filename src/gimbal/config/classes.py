"""Every class of the package by name, read from its source without importing or parsing it, which takes a second each."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).parent.parent
# A class or a function of a module: its decorators, its kind, name and what is in its brackets, and its docstring.
HEAD = re.compile(
    r"""^((?:@.*\n)*)(class|def)\ (\w+)(?:\(([^)]*)\))?[^\n]*:[^\n]*\n(?:\ +(r?\"{3}(?:[^"\\]|\\.|"(?!""))*\"{3}))?""",
    re.M | re.X,
)
ABBREVIATION = re.compile(r"\b(Dr|al|cf|vs|e\.g|i\.e)\.$")
# Interfaces that are not methods.
NO_METHODS = (
    "AbstractPart",
    "AbstractTasks",
    "AbstractDecisions",
    "AbstractSampling",
    "AbstractRemembering",
    "AbstractSuccessTracking",
    "AbstractOverRows",
    "AbstractRun",
    "AbstractPolicyGradient",
    "AbstractSampler",
    "AbstractOptimizer",
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """A class of the package, as read from its source without importing it."""

    name: str
    module: str
    line: int
    summary: str  # first sentence of the docstring
    bases: tuple[str, ...]  # nearest first, those of its interfaces too
    part: bool  # a dataclass: a recipe may hold it
    confidence: str  # "verified", "partial" or "abstract-only" if the docstring has a confidence line, else ""


class Head(NamedTuple):
    """How a class or a function of a module begins."""

    decorators: str
    kind: str  # class or def
    name: str
    bases: tuple[str, ...]  # those that are names
    docstring: str
    line: int


def heads(text: str) -> Iterator[Head]:
    """Of the classes of a module of this package, in the form that its formatter gives them, and of functions whose arguments fit one
    line."""
    for found in HEAD.finditer(text):
        decorators, kind, name, given, docstring = found.groups()
        bases = tuple(base for each in (given or "").split(",") if (base := each.strip()).isidentifier())
        line = text.count("\n", 0, found.start(2)) + 1
        said = inspect.cleandoc(ast.literal_eval(docstring)) if docstring else ""
        yield Head(decorators, kind, name, bases, said, line)


@cache
def _classes() -> dict[str, tuple[str, Head]]:
    """Every public class of the package by name: its module, and its beginning."""
    found: dict[str, tuple[str, Head]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("gimbal", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for head in heads(file.read_text(encoding="utf-8")):
            if head.kind == "class" and not head.name.startswith("_"):
                found[head.name] = module, head
    return found


def _bases(name: str) -> list[str]:
    """Of a class, nearest first; those of what is no method are not asked for."""
    if name in NO_METHODS or name not in _classes():
        return []
    own = _classes()[name][1].bases
    return list(dict.fromkeys([*own, *(further for base in own for further in _bases(base))]))


@cache
def catalogue() -> dict[str, Entry]:
    """Every public concrete class of the package by name."""
    found: dict[str, Entry] = {}
    for name, (module, head) in _classes().items():
        if not name.startswith("Abstract"):
            said = first_sentence(head.docstring), tuple(_bases(name)), "dataclass" in head.decorators
            found[name] = Entry(name, module, head.line, *said, confidence(head.docstring))
    return found


def methods() -> dict[str, list[Entry]]:
    """The parts that have an interface, by kind: Objective, Advantage, Reward, ...; by the most general of its interfaces. No tasks."""
    kinds: dict[str, list[Entry]] = {}
    for entry in catalogue().values():
        for base in filter(_is_kind, entry.bases):
            if entry.part and "AbstractTasks" not in entry.bases and not any(map(_is_kind, _bases(base))):
                kinds.setdefault(base.removeprefix("Abstract").removesuffix("Spec"), []).append(entry)
    return kinds


def _is_kind(base: str) -> bool:
    return base.startswith("Abstract") and base not in NO_METHODS


def confidence(docstring: str) -> str:
    """The first word of a docstring's line "Confidence: ..."."""
    found = re.search(r"^Confidence: ([\w-]+)", docstring, re.MULTILINE)
    return found[1] if found else ""


def first_sentence(docstring: str) -> str:
    """The summary of a docstring. A full stop inside brackets or of an abbreviation ("after Dr. GRPO") does not end it."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    for stop in re.finditer(r"\.(?= [A-Z])", paragraph):
        head = paragraph[: stop.end()]
        if head.count("(") == head.count(")") and head.count("[") == head.count("]") and not ABBREVIATION.search(head):
            return head
    return paragraph


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a refusal: "; did you mean X?", or "" if no name is close."""
    lower = {each.lower(): each for each in names}
    match = difflib.get_close_matches(name.lower(), list(lower), n=1)
    return f"; did you mean {lower[match[0]]}?" if match else ""
