"""A stream of tasks from families with a rule each, where some neighbours mislead; and how past cases are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from string import ascii_letters, ascii_lowercase

from gimbal.environments.base import AbstractGenerated
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Families(AbstractGenerated):
    """Tasks of families: the answer is the family's digit, and the prompt a topic of four letters, then the letter of the family.

    Each family has a topic. With probability ``misleading`` a task has that of another family, so that most of its neighbours by their
    text have another answer. Nothing but past cases tells a family's digit. ``columns["family"]`` is its number. After every
    ``period`` tasks the families get new letters, topics and digits, so that weights cannot hold them; 0: never. Digits are below
    ``digits``. Generated from (``seed``, index).
    """

    families: int = 20
    misleading: float = 0.3
    period: int = 0
    digits: int = 10
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if self.period < 0:
            raise ValueError(f"Families.period is {self.period}; it is a number of tasks, or 0 for rules that stay")
        if not 1 <= self.digits <= 10:
            raise ValueError(f"Families.digits is {self.digits}; it counts the digits that answers may be, 1 to 10")
        if not 2 <= self.families <= len(ascii_letters) or not 0 <= self.misleading <= 1:
            raise ValueError(
                f"Families has families={self.families} and misleading={self.misleading}: 2 to {len(ascii_letters)} families, and a "
                "probability"
            )

    def task(self, index: int) -> Task:
        rules = Random(f"families:{self.seed}:rules {index // self.period}" if self.period else f"families:{self.seed}")
        letters = rules.sample(ascii_letters, self.families)
        topics = [word(rules) for _ in letters]
        digits = [str(rules.randrange(self.digits)) for _ in letters]
        rng = Random(f"families:{self.seed}:{index}")
        family = topic = rng.randrange(self.families)
        if rng.random() < self.misleading:
            topic = rng.choice([other for other in range(self.families) if other != family])
        return Task(
            id=f"family:{self.seed}:{index}",
            prompt=f"{topics[topic]}{letters[family]}>",
            answer=digits[family],
            columns={"family": family},
        )


@dataclass(frozen=True, kw_only=True)
class CaseTurns(AbstractGenerated):
    """Tasks with up to ``most`` cases before them, for SFT: ``columns["completion"]`` is the answer of one of the cases, by chance, or
    a guess where there is none. Generated from (``seed``, index)."""

    most: int = 4
    seed: int = 0
    size: int = 1_000_000

    def task(self, index: int) -> Task:
        rng = Random(f"case turns:{self.seed}:{index}")
        cases = [
            (f"{word(rng)}{rng.choice(ascii_letters)}>", str(rng.randrange(10)))
            for _ in range(rng.randint(0, self.most))
        ]
        prompt = with_cases(f"{word(rng)}{rng.choice(ascii_letters)}>", cases)
        said = rng.choice(cases)[1] if cases else str(rng.randrange(10))
        return Task(id=f"case turn:{self.seed}:{index}", prompt=prompt, source="cases", columns={"completion": said})


def word(rng: Random) -> str:
    return "".join(rng.choices(ascii_lowercase, k=4))


def with_cases(prompt: str, cases: Sequence[tuple[str, str]]) -> str:
    """A prompt behind past ones and their answers, one a line."""
    return "".join(f"{asked}{answer}\n" for asked, answer in cases) + prompt
