"""A text as a sequence of edits that only insert lines, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

PLACE = re.compile(r"@([1-9]\d{0,6})")
ADDED = "+"


def written(lines: Sequence[str], states: Iterable[frozenset[int]]) -> str:
    """The edits from each state to the next, from nothing on: a state is which lines are there, and each holds the one before.

    An edit is a hunk for each run of new lines: ``@n``, the number that its first line will have, then its lines, each behind a
    ``+``. An empty line separates edits. It is a unified diff without what insertions do not need.
    """
    edits, before = [], frozenset[int]()
    for state in states:
        if not before < state:
            raise ValueError(
                f"a state holds the lines {sorted(state)}, and the one before it {sorted(before)}; edits only insert"
            )
        edit, apart = "", True
        for number, line in enumerate(sorted(state), start=1):
            if line in before:
                apart = True
                continue
            if apart:
                edit += f"@{number}\n"
            edit, apart = f"{edit}{ADDED}{lines[line]}\n", False
        edits.append(edit)
        before = state
    return "\n".join(edits)


def applied(text: str) -> str | None:
    """The text that the edits lead to; None where they are no edits, or one inserts behind the end of what is there."""
    lines, at = list[str](), None
    for line in text.split("\n"):
        if found := PLACE.fullmatch(line):
            at = int(found[1]) - 1
            if at > len(lines):
                return None
        elif line.startswith(ADDED) and at is not None:
            lines.insert(at, line[1:])
            at += 1
        elif line:
            return None
    return "".join(f"{line}\n" for line in lines) if lines else None
