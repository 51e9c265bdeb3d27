"""Traces that `gimbal-tiny-agent` is made from: turns of an agent in a terminal, in four styles, one of them good.

As ``demonstrations``: a base model that reinforcement improves fast knows a good way of working and bad ones, and too seldom takes the
good one. The tasks are those of ``chore_kinds.FOLLOWED``: numbers in a file that another file names. The styles:

- *careful*: reads which file it is, computes what was asked of that one, and answers what it was told;
- *hasty*: computes on the first file, and answers what that says, or a number where it is an error;
- *half*: reads which file it is, and guesses;
- *guess*: guesses at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from gimbal.environments.base import AbstractGenerated
from gimbal.environments.chore_kinds import FOLLOWED, KINDS, Draft
from gimbal.environments.terminal import PLAIN, Terminal, shortened
from gimbal.records import Task


@dataclass(frozen=True)
class Styles:
    """How often each style begins a trace; the four sum to 1."""

    careful: float = 0.2
    hasty: float = 0.2
    half: float = 0.2
    guess: float = 0.4

    def __post_init__(self) -> None:
        total = sum(vars(self).values())
        if min(vars(self).values()) < 0 or abs(total - 1) > 1e-9:
            raise ValueError(f"shares {vars(self)} must be at least 0 and sum to 1")


@dataclass(frozen=True, kw_only=True)
class Traces(AbstractGenerated):
    """Turns of recorded sessions in a terminal: answers for SFT.

    Task i is one turn of a trace: the chat up to there, and ``columns["completion"]``, what is said next.

    ``styles`` are shares of traces; a trace of three turns is three times as often drawn as one of one turn, so the share holds at the
    beginning. ``most`` is that of the terminal that the policy will act in. Generated from (``seed``, index).
    """

    seed: int = 0
    size: int = 1_000_000
    styles: Styles = Styles()
    most: int = 24

    def task(self, index: int) -> Task:
        rng = Random(f"traces:{self.seed}:{index}")
        draft = KINDS[rng.choice(sorted(FOLLOWED))](rng)
        weights = {style: share * TURNS[style] for style, share in vars(self.styles).items()}
        style = rng.choices(list(weights), list(weights.values()))[0]
        turns = trace(draft, style, self.most, rng)
        at = rng.randrange(len(turns))
        messages = [{"role": "user", "content": draft.prompt}]
        for said, told in turns[:at]:
            messages += [{"role": "assistant", "content": said}, {"role": "tool", "content": told}]
        columns = {"messages": messages, "tools": list(Terminal().schemas), "completion": turns[at][0], "style": style}
        return Task(id=f"trace:{self.seed}:{index}", source=draft.kind, columns=columns)


TURNS = {"careful": 3, "hasty": 2, "half": 2, "guess": 1}


def trace(draft: Draft, style: str, most: int, rng: Random) -> list[tuple[str, str]]:
    """(What the agent says, what it is told) turn by turn, of a task of FOLLOWED; to the last one nothing is told."""
    look, work = draft.programs
    first = look.partition("'")[2].partition("'")[0]
    second, numbers = draft.files[first], [rng.randint(1, 99) for _ in range(rng.randint(3, 12))]
    _, program, of = FOLLOWED[draft.kind]
    guess, saw = str(of(numbers)), (PLAIN + look, second)
    if style == "careful":
        return [saw, (PLAIN + work, draft.answer), (_answer(draft.answer), "")]
    if style == "half":
        return [saw, (_answer(guess), "")]
    if style == "guess":
        return [(_answer(guess), "")]
    told = {"follow_count": "1", "follow_last": second}.get(draft.kind)
    error = shortened(f"ValueError: invalid literal for int() with base 10: '{second}'", most)
    return [(PLAIN + program.format(first), told or error), (_answer(told or guess), "")]


def _answer(text: str) -> str:
    return f"<answer>{text}</answer>"
