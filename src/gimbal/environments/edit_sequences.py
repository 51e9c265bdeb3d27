"""Programs as sequences of edits, none of which breaks what is there (LintSeq)."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from random import Random

from gimbal.config.parts import resolve
from gimbal.environments.base import AbstractTasks
from gimbal.ops.edits import written
from gimbal.records import Task

Linter = Callable[[str], Collection[int]]  # a program -> the numbers, from 1, of its lines with an error


def python_errors(program: str) -> set[int]:
    """The lines of a Python program with an error that shows without running it: of syntax, a block without a body, a name that is
    bound nowhere in it."""
    lines = program.split("\n")
    try:
        tree = ast.parse(program)
    except SyntaxError as error:
        filled = [number for number, line in enumerate(lines) if line.strip()]
        for here, after in zip_longest(filled, filled[1:]):
            opens = lines[here].rstrip().endswith(":")
            if opens and (after is None or _indent(lines[after]) <= _indent(lines[here])):
                return {here + 1}  # where the compiler names the line behind it
        return {min(max(error.lineno or 1, 1), len(lines))}
    bound = set(dir(builtins)) | {"__name__", "__file__", "__doc__"}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                bound |= {(each.asname or each.name).partition(".")[0] for each in names}
            case ast.FunctionDef(name=str(name)) | ast.AsyncFunctionDef(name=str(name)) | ast.ClassDef(name=str(name)):
                bound.add(name)
            case ast.arg(arg=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                bound.add(name)
            case ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                bound.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                bound.add(name)
    reads = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
    return set() if "*" in bound else {node.lineno for node in reads if node.id not in bound}


def insertions(lines: Sequence[str], linter: Linter | None, rng: Random) -> list[frozenset[int]]:
    """The states of a program that grows by edits, from the first one to all lines.

    Backwards: a line is drawn, and deleted with what is indented beneath it; then the lines in which the linter finds an error that
    the whole program has not, with theirs, until there is none. What is left is the state before; and so on until nothing is left.
    """
    whole = frozenset(range(len(lines)))
    known = _wrong(lines, whole, linter)
    states, left = [whole] if whole else [], whole
    while filled := [line for line in sorted(left) if lines[line].strip()]:
        left -= _block(lines, left, rng.choice(filled))
        while found := sorted(_wrong(lines, left, linter) - known):
            for line in found:
                left -= _block(lines, left, line)
        states.append(left)
    return [state for state in reversed(states) if any(lines[line].strip() for line in state)]


def _wrong(lines: Sequence[str], left: frozenset[int], linter: Linter | None) -> frozenset[int]:
    if linter is None or not left:
        return frozenset()
    order = sorted(left)
    found = list(linter("".join(f"{lines[line]}\n" for line in order)))
    if wrong := [number for number in found if number not in range(1, len(order) + 1)]:
        raise ValueError(f"the linter found an error in line {wrong[0]} of {len(order)}; lines are counted from 1")
    return frozenset(order[number - 1] for number in found)


def _block(lines: Sequence[str], left: frozenset[int], line: int) -> frozenset[int]:
    """The line with those behind it that are indented further, or empty."""
    block = {line}
    for after in sorted(each for each in left if each > line):
        if lines[after].strip() and _indent(lines[after]) <= _indent(lines[line]):
            break
        block.add(after)
    return frozenset(block)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


@dataclass(frozen=True, kw_only=True)
class EditSequences(AbstractTasks):
    """Programs in ``columns["completion"]``, written as edits: LintSeq (arXiv:2410.02749), data for SFT.

    A program is taken apart by random deletions that leave no new error of a linter; backwards, these are insertions that lead from
    nothing to the program (``environments.edit_sequences.insertions``). ``ops.edits`` has how they are written, and
    ``ops.edits.applied`` the program that such a text leads to. Each program is written ``samples`` times, each time in another order.
    ``columns["program"]`` holds it whole.

    ``linter`` is a function of a program that returns the numbers of its lines with an error, ``f.py:g`` or ``pkg.mod:g``.
    The default finds errors of Python's syntax and names that are bound nowhere. "": none.

    - a program of one line: one edit, the program.
    - ``linter`` "": random insertions of lines, the ablation of the paper.
    - a linter that finds an error in every state: one edit, the whole program.

    Ours: no search over orders (the paper's code keeps the best of several), and the short form of an edit.
    """

    tasks: AbstractTasks
    samples: int = 5
    linter: str = "gimbal.environments.edit_sequences:python_errors"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"EditSequences.samples is {self.samples}; a program is written 1 or more times")

    def __len__(self) -> int:
        return len(self.tasks) * self.samples

    def __getitem__(self, index: int) -> Task:
        sample, number = divmod(index, len(self.tasks))
        task = self.tasks[number]
        program = task.columns.get("completion")
        if not isinstance(program, str) or not program.strip():
            raise ValueError(
                f"task {task.id} has no program to be written as edits: give a text in its column completion"
            )
        lines = program.removesuffix("\n").split("\n")  # a line may hold other marks of its end
        rng = Random(f"edits:{self.seed}:{index}")
        edits = written(lines, insertions(lines, self._linter, rng))
        columns = {**task.columns, "completion": edits, "program": program}
        return replace(task, id=f"{task.id}:edits:{sample}", columns=columns)

    @cached_property
    def _linter(self) -> Linter | None:
        return resolve(self.linter) if self.linter else None
