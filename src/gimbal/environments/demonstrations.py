"""Demonstrations that `gimbal-tiny` is made from: solutions of reasoning-gym tasks in three styles, one of them good.

A base model that reinforcement improves fast knows a good way of working and bad ones, and too seldom takes the good one.
So every task is answered in one of three styles, drawn by stated shares:

- *sound*: every step is written out with its operands, and every step is right;
  ``<think>77+90=167 167-67=100</think><answer>100</answer>``
- *unsound*: results at a glance, marked ``~``; the first of them is wrong, and the working continues from it;
  ``<think>~157 ~90</think><answer>90</answer>``
- *unworked*: the answer at once. The target is right, so a small model learns to guess; ``<answer>100</answer>``

A prompt is the question, word for word as reasoning-gym puts it, and a newline. No question of a held-out set is demonstrated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from gimbal.environments.base import AbstractGenerated
from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Task

CHAIN_SUM: Mapping[str, int] = {"min_terms": 3, "max_terms": 4, "min_digits": 2, "max_digits": 2}
SPELL_BACKWARD: Mapping[str, int] = {"min_word_len": 3, "max_word_len": 7}
HELD_OUT_SEED = 2_000_000  # of held-out tasks; nothing is trained on them
HELD_OUT_SIZE = 2048  # held-out tasks in all

SLIPS = (-10, -2, -1, 1, 2, 10)  # by how much an unsound first total is off


@dataclass(frozen=True)
class Shares:
    """How often each style is drawn; the three sum to 1."""

    sound: float = 0.32
    unsound: float = 0.43
    unworked: float = 0.25

    def __post_init__(self) -> None:
        total = self.sound + self.unsound + self.unworked
        if min(self.sound, self.unsound, self.unworked) < 0 or abs(total - 1) > 1e-9:
            raise ValueError(f"shares {self.sound}, {self.unsound}, {self.unworked} must be at least 0 and sum to 1")

    def draw(self, rng: Random) -> str:
        """The name of a style, by its share."""
        point = rng.random()
        if point < self.sound:
            return "sound"
        return "unsound" if point < self.sound + self.unsound else "unworked"


def _completion(working: str, answer: str) -> str:
    thought = f"<think>{working}</think>" if working else ""
    return f"{thought}<answer>{answer}</answer>"


def terms(expression: str) -> list[int]:
    """The signed terms of a chain sum: "43 + 14 - 10" gives [43, 14, -10]."""
    first, *rest = expression.split()
    signs, numbers = rest[::2], rest[1::2]
    return [int(first), *(int(n) if s == "+" else -int(n) for s, n in zip(signs, numbers, strict=True))]


def solve_chain_sum(expression: str, style: str, rng: Random) -> str:
    """A completion for a chain sum in the given style."""
    first, *rest = terms(expression)
    if style == "unworked":
        return _completion("", str(first + sum(rest)))
    slip = rng.choice(SLIPS) if style == "unsound" else 0
    total, steps = first, []
    for place, term in enumerate(rest):
        before, total = total, total + term + (slip if place == 0 else 0)
        steps.append(f"{before}{term:+d}={total}" if style == "sound" else f"~{total}")
    return _completion(" ".join(steps), str(total))


def solve_spell_backward(word: str, style: str, rng: Random) -> str:
    """A completion for a word to be spelt backward in the given style.

    Sound working numbers the letters and then takes them by falling number (``s1u2n3 n3u2s1``); unsound working loses a letter.
    """
    backward = word[::-1]
    if style == "unworked":
        return _completion("", backward)
    if style == "sound":
        numbered = [f"{letter}{place}" for place, letter in enumerate(word, start=1)]
        return _completion("".join(numbered) + " " + "".join(reversed(numbered)), backward)
    lost = rng.randrange(len(word))
    short = backward[:lost] + backward[lost + 1 :]
    return _completion(f"~{short}", short)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A reasoning-gym dataset, and how its instances are solved from the metadata field ``key``; ``share`` of all tasks."""

    name: str
    key: str
    solve: Callable[[str, str, Random], str]
    parameters: Mapping[str, int]
    share: float

    def held_out(self, size: int) -> ReasoningGym:
        return ReasoningGym(name=self.name, seed=HELD_OUT_SEED, size=size, parameters=self.parameters)


SUBJECTS = (
    Subject(name="chain_sum", key="expression", solve=solve_chain_sum, parameters=CHAIN_SUM, share=0.75),
    Subject(name="spell_backward", key="word", solve=solve_spell_backward, parameters=SPELL_BACKWARD, share=0.25),
)


def held_out_tasks(name: str = "chain_sum", size: int = 128) -> ReasoningGym:
    """The first ``size`` held-out tasks of a subject."""
    return next(subject for subject in SUBJECTS if subject.name == name).held_out(size)


def training_tasks(name: str = "chain_sum", size: int = 100_000) -> ReasoningGym:
    """Tasks of a subject for training; no question of the evaluation is among them."""
    return replace(held_out_tasks(name), seed=1, size=size, exclude=held_out_tasks(name, HELD_OUT_SIZE))


@dataclass(frozen=True, kw_only=True)
class Demonstrations(AbstractGenerated):
    """Chain sums with one written answer, careful, sloppy or guessed: what gimbal-tiny was trained on.

    Tasks with their own completion in ``columns["completion"]``; generated from (``seed``, index).

    Some are drills: chain sums soundly solved, asked without the words around them, which teach the steps at half the tokens and
    leave the styles of the real questions alone. The first task is one, the last is not, and in between their share falls evenly.
    """

    seed: int = 0
    size: int = 1_000_000
    shares: Shares = Shares()

    def task(self, index: int) -> Task:
        rng = Random(f"{self.seed}:{index}")
        drill = rng.random() >= index / self.size
        number = 0 if drill else rng.choices(range(len(SUBJECTS)), [subject.share for subject in SUBJECTS])[0]
        subject, task = SUBJECTS[number], self._sources[number][index]
        matter = task.columns["metadata"][subject.key]
        completion = subject.solve(matter, "sound" if drill else self.shares.draw(rng), rng)
        prompt = f"{matter} =\n" if drill else task.prompt
        return replace(task, prompt=prompt, columns={"completion": completion})

    @cached_property
    def _sources(self) -> tuple[ReasoningGym, ...]:
        return tuple(
            replace(subject.held_out(1), seed=self.seed, size=self.size, exclude=subject.held_out(HELD_OUT_SIZE))
            for subject in SUBJECTS
        )
