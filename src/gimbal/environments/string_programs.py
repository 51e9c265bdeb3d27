"""Small Python functions to be written from one example."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal
from zlib import crc32

from gimbal.environments.base import AbstractGenerated
from gimbal.records import Task

NAMES = "abcdefgh"
SLICES = ("[1:]", "[:-1]", "[::-1]", "[0]", "[-1]")
SHOWN = "1234"
MOST = 8  # characters of an output


@dataclass(frozen=True, kw_only=True)
class StringPrograms(AbstractGenerated):
    """Functions of a text of four characters, to be written from one example: "34123" asks for a function ``f`` that makes this of
    "1234".

    A function has ``least`` to ``most`` lines before its last. Each names a slice of what was named before, or two of them behind
    one another; all are used. ``columns["completion"]`` is one that fits, and ``columns["tests"]`` a program that raises unless ``f``
    does to three other texts what the hidden function does: many functions pass, and the example leaves open only how it is written.

    What a quarter of all functions make of "1234" is asked in the ``split`` held_out only.

    Made for ``PassesTests`` and ``EditSequences``.
    """

    least: int = 1
    most: int = 3
    split: Literal["train", "held_out"] = "train"
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most < len(NAMES):
            raise ValueError(
                f"StringPrograms has {self.least} to {self.most} lines; expected 1 <= least <= most <= {len(NAMES) - 1}"
            )

    def task(self, index: int) -> Task:
        rng = Random(f"string programs:{self.split}:{self.seed}:{index}")
        while (program := _drawn(rng, rng.randint(self.least, self.most))) is None or _split(program[1]) != self.split:
            pass
        body, selected = program
        texts = [SHOWN, *("".join(rng.sample("0123456789", len(SHOWN))) for _ in range(3))]
        shown, *others = ("".join(text[place] for place in selected) for text in texts)
        return Task(
            id=f"string_programs:{self.split}:{self.seed}:{index}",
            prompt=f"{shown}\n",
            columns={
                "completion": body,
                "tests": "".join(f"assert f({x!r}) == {y!r}\n" for x, y in zip(texts[1:], others, strict=True)),
            },
        )


def _split(selected: tuple[int, ...]) -> str:
    return "held_out" if crc32(bytes(selected)) % 4 == 0 else "train"


def _drawn(rng: Random, count: int) -> tuple[str, tuple[int, ...]] | None:
    """A function with so many lines before its last, and which places of its text it takes; None where a line is never used."""
    values: list[tuple[int, ...]] = [tuple(range(len(SHOWN)))]
    lines, unused = [], set[int]()
    for number in range(1, count + 2):
        last = number == count + 1
        if len(unused) == 2 and (last or rng.random() < 0.5):
            one, other = rng.sample(sorted(unused), 2)
        elif rng.random() < 0.3 and number > 1:
            one, other = rng.choice(sorted(unused)), rng.randrange(number)
        else:
            one, other = (rng.choice(sorted(unused)) if last else rng.randrange(number)), None
        if other is None:
            part = rng.choice(SLICES)
            value, text = _sliced(values[one], part), f"{NAMES[one]}{part}"
        else:
            value, text = values[one] + values[other], f"{NAMES[one]}+{NAMES[other]}"
        if not value or len(value) > MOST or value in values:
            return None
        values.append(value)
        unused = (unused - {one, other}) | {number}
        lines.append(f" return {text}\n" if last else f" {NAMES[number]}={text}\n")
    return ("def f(a):\n" + "".join(lines), values[-1]) if len(unused) == 1 else None


def _sliced(value: tuple[int, ...], part: str) -> tuple[int, ...]:
    return {"[1:]": value[1:], "[:-1]": value[:-1], "[::-1]": value[::-1], "[0]": value[:1], "[-1]": value[-1:]}[part]
