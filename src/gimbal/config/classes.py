"""Every class of the package by name, read from its source without importing it."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parent.parent
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
    bases: tuple[str, ...]
    part: bool  # a dataclass: a recipe may hold it
    confidence: str  # "verified", "partial" or "abstract-only" if the docstring has a confidence line, else ""


@cache
def catalogue() -> dict[str, Entry]:
    """Every public concrete class of the package by name."""
    found: dict[str, Entry] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("gimbal", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith(("_", "Abstract")):
                bases = tuple(base.id for base in node.bases if isinstance(base, ast.Name))
                part = any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
                found[node.name] = Entry(
                    node.name,
                    module,
                    node.lineno,
                    first_sentence(node),
                    bases,
                    part,
                    confidence(ast.get_docstring(node)),
                )
    return found


def methods() -> dict[str, list[Entry]]:
    """The parts that have an interface, by kind: Objective, Advantage, Reward, ..."""
    kinds: dict[str, list[Entry]] = {}
    for entry in catalogue().values():
        for base in entry.bases:
            if entry.part and base.startswith("Abstract") and base not in NO_METHODS:
                kinds.setdefault(base.removeprefix("Abstract").removesuffix("Spec"), []).append(entry)
    return kinds


def confidence(docstring: str | None) -> str:
    """The first word of a docstring's line "Confidence: ..."."""
    found = re.search(r"^Confidence: ([\w-]+)", docstring or "", re.MULTILINE)
    return found[1] if found else ""


def first_sentence(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """The summary of a docstring. A full stop inside brackets or of an abbreviation ("after Dr. GRPO") does not end it."""
    paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    for stop in re.finditer(r"\.(?= [A-Z])", paragraph):
        head = paragraph[: stop.end()]
        if head.count("(") == head.count(")") and head.count("[") == head.count("]") and not ABBREVIATION.search(head):
            return head
    return paragraph


def nearest(name: str, names: Iterable[str]) -> str:
    """The end of a refusal: "; did you mean X?", or "" if no name is close."""
    match = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {match[0]}?" if match else ""
