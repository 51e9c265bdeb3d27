"""Proofs as segments: runs of tactics between changes of what is open (SEG-ATP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from gimbal.environments.base import AbstractTasks
from gimbal.records import Task


def segments(open_goals: Sequence[int], most: int = 0, *, at_goals: bool = True) -> list[tuple[int, int]]:
    """Where the segments of n tactics begin and end, by how many goals are open before each of them and after the last (n + 1 counts).

    A segment ends behind a tactic that changes the number of open goals (``at_goals``), and behind its ``most``-th tactic (0: no
    limit).
    """
    cuts, start = [], 0
    for end, (before, after) in enumerate(pairwise(open_goals), 1):
        if (at_goals and before != after) or end - start == most or end == len(open_goals) - 1:
            cuts.append((start, end))
            start = end
    return cuts


@dataclass(frozen=True, kw_only=True)
class Segments(AbstractTasks):
    """Proofs cut in segments, for SFT: each task asks for a state, and its completion is the run of tactics from there to the next
    change of the number of open goals (SEG-ATP, arXiv:2605.11905).

    A proof is a row with the columns ``tactics`` (texts) and ``states`` (what a prover shows before each of them). How many goals are
    open is how often ``goal`` occurs in a state, which is Lean's turnstile by default; after the last tactic there are none. The
    prompt is the state and a new line, the completion the tactics, one a line.

    - ``most`` 1: single tactics.
    - ``at_goals`` false, ``most`` 0: whole proofs.
    - ``at_goals`` false, ``most`` n: runs of n tactics, wherever they end.

    Confidence: abstract only; that a change of the number of open goals ends a segment is the paper's, by summaries of it.
    """

    tasks: AbstractTasks
    most: int = 0
    at_goals: bool = True
    goal: str = "⊢"

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ValueError(f"Segments.most is {self.most}; it is a number of tactics, or 0 for no limit")
        if not self.goal:
            raise ValueError(
                "Segments.goal is empty; it is the sign that a state has once for each open goal, such as ⊢"
            )

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, index: int) -> Task:
        number, start, end = self._cuts[index]
        task = self.tasks[number]
        states, tactics = self._proof(task)
        columns = {name: value for name, value in task.columns.items() if name not in ("states", "tactics")}
        columns["completion"] = "\n".join(tactics[start:end])
        return replace(task, id=f"{task.id}:{start}-{end}", prompt=f"{states[start]}\n", columns=columns)

    @cached_property
    def _cuts(self) -> list[tuple[int, int, int]]:
        """Which proof, and the first and the last of its tactics, of each segment."""
        found = []
        for number in range(len(self.tasks)):
            states, _ = self._proof(self.tasks[number])
            counts = [*(state.count(self.goal) for state in states), 0]
            found += [(number, *cut) for cut in segments(counts, self.most, at_goals=self.at_goals)]
        return found

    def _proof(self, task: Task) -> tuple[Sequence[str], Sequence[str]]:
        states, tactics = _texts(task, "states"), _texts(task, "tactics")
        if not tactics or len(states) != len(tactics):
            raise ValueError(
                f"task {task.id} has {len(states)} states and {len(tactics)} tactics; expected as many of each, and at least one"
            )
        if not all(tactic.strip() for tactic in tactics):
            raise ValueError(
                f"task {task.id} has an empty tactic in {tactics!r:.60}: take it out, and its state with it"
            )
        if bare := [state for state in states if self.goal not in state]:
            raise ValueError(
                f"task {task.id}: nothing is open in the state {bare[0]!r:.60}; give Segments.goal the sign that each goal has there"
            )
        return states, tactics


def _texts(task: Task, column: str) -> Sequence[str]:
    found = task.columns.get(column)
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
        raise ValueError(f"task {task.id} has no proof: its column {column} is {found!r:.60}; expected a list of texts")
    return found
