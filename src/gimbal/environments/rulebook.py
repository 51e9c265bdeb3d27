"""Rules that are shown beside a task or have to be known."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from string import ascii_lowercase

from gimbal.environments.base import AbstractGenerated
from gimbal.environments.recall import ASKS, QUESTION
from gimbal.records import Task


@dataclass(frozen=True, kw_only=True)
class Rulebook(AbstractGenerated):
    """Tasks under ``rules`` rules: each asks for the values of A and B under one of them, which it names by a line of eight letters.

    The prompt is the question of Recall, that line and "="; ``columns["context"]`` is the question and the rule, a line such as
    "kxA2mpB7" in which both values stand, and ``columns["rest"]`` the prompt without the question. Rules are drawn from ``seed``,
    which one a task is under from (``seed``, index). ``answer`` is the value of A and that of B.
    """

    rules: int = 16
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if self.rules < 1:
            raise ValueError(f"Rulebook.rules is {self.rules}; it counts the rules, 1 or more")

    def task(self, index: int) -> Task:
        number = Random(f"rulebook:{self.seed}:{index}").randrange(self.rules)
        rng = Random(f"rulebook:{self.seed}:rule {number}")
        name = "".join(rng.choices(ascii_lowercase, k=8))
        answer = f"{rng.randrange(5)}{rng.randrange(5, 10)}"
        facts = ["A" + answer[0], "B" + answer[1], *("".join(rng.choices(ascii_lowercase, k=2)) for _ in range(2))]
        rng.shuffle(facts)
        rest = f"{name}\n{ASKS}"
        return Task(
            id=f"rulebook:{self.seed}:{index}",
            prompt=QUESTION + rest,
            answer=answer,
            columns={"context": f"{QUESTION}{''.join(facts)}\n", "rest": rest, "rule": number},
        )
