"""Demonstrations that `gimbal-tiny` is made from: solutions of reasoning-gym tasks in three styles, one of them good.

A base model that reinforcement improves fast knows a good way of working and bad ones, and too seldom takes the good one.
So every task is answered in one of three styles, drawn by stated shares:

- *sound*: every step is written out with its operands, and every step is right;
  ``<think>77+90=167 167-67=100</think><answer>100</answer>``
- *unsound*: results at a glance, marked ``~``; the first of them is wrong, and the working goes on from it;
  ``<think>~157 ~90</think><answer>90</answer>``
- *unworked*: the answer at once. The target is right, so a small model learns to guess; ``<answer>100</answer>``

A prompt is the question, word for word as reasoning-gym puts it, and a newline. Questions of the reserved evaluation seed
(`reserved_questions`) are never demonstrated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

SEPARATOR = "\n"  # between a question and its completion
EVALUATION_SEED = 2_000_000_000  # reasoning-gym draws instance i of a dataset from seed + i
EVALUATION_SIZE = 2048  # instances reserved for held-out evaluation

CHAIN_SUM: Mapping[str, int] = {"min_terms": 3, "max_terms": 4, "min_digits": 2, "max_digits": 2}
SPELL_BACKWARD: Mapping[str, int] = {"min_word_len": 3, "max_word_len": 7}

SLIPS = (-10, -2, -1, 1, 2, 10)  # by how much an unsound first total is off


@dataclass(frozen=True)
class Shares:
    """How often each style is drawn; the three sum to 1."""

    sound: float = 0.28
    unsound: float = 0.42
    unworked: float = 0.30

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


@dataclass(frozen=True)
class Demonstration:
    """A prompt, a completion without its end-of-text token, and the style of the completion."""

    prompt: str
    completion: str
    style: str


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


@dataclass(frozen=True)
class Subject:
    """A reasoning-gym dataset, its parameters, and how its instances are solved.

    ``key`` is the metadata field that `solve` reads; ``share`` how often the subject is drawn.
    """

    name: str
    key: str
    solve: Callable[[str, str, Random], str]
    parameters: Mapping[str, int]
    share: float


SUBJECTS = (
    Subject("chain_sum", "expression", solve_chain_sum, CHAIN_SUM, 0.75),
    Subject("spell_backward", "word", solve_spell_backward, SPELL_BACKWARD, 0.25),
)


def _dataset(name: str, seed: int, size: int, parameters: Mapping[str, Any]) -> Any:
    import reasoning_gym  # takes seconds, and only makers of data need it

    return reasoning_gym.create_dataset(name, seed=seed, size=size, **parameters)


def reserved_questions(
    name: str, parameters: Mapping[str, Any], seed: int = EVALUATION_SEED, size: int = EVALUATION_SIZE
) -> frozenset[str]:
    """The questions kept for held-out evaluation: instances 0 to ``size`` - 1 of the dataset's evaluation seed."""
    dataset = _dataset(name, seed, size, parameters)
    return frozenset(dataset[index]["question"] for index in range(size))


@dataclass(frozen=True)
class Demonstrations:
    """An endless, seeded stream of demonstrations.

    ``drill_share`` of them are drills: chain sums soundly solved, asked without the words around them, which teach the steps at
    half the tokens and leave the styles of the real questions alone.
    """

    shares: Shares = field(default_factory=Shares)
    drill_share: float = 0.0
    subjects: tuple[Subject, ...] = SUBJECTS
    reserve: int = EVALUATION_SIZE

    def stream(self, rng: Random) -> Iterator[Demonstration]:
        """Demonstrations, for ever, all drawn from ``rng``; no reserved question among them."""
        # One dataset object a subject; its instances are addressed by any integer below the evaluation seed.
        datasets = [_dataset(s.name, 0, 1, s.parameters) for s in self.subjects]
        reserved = [reserved_questions(s.name, s.parameters, size=self.reserve) for s in self.subjects]
        weights = [s.share for s in self.subjects]
        chain_sum = next((i for i, s in enumerate(self.subjects) if s.name == "chain_sum"), None)
        while True:
            drill = chain_sum is not None and rng.random() < self.drill_share
            chosen = chain_sum if drill else rng.choices(range(len(weights)), weights)[0]
            assert chosen is not None
            subject = self.subjects[chosen]
            entry = datasets[chosen][rng.randrange(EVALUATION_SEED)]
            if entry["question"] in reserved[chosen]:
                continue
            matter = entry["metadata"][subject.key]
            style = "sound" if drill else self.shares.draw(rng)
            question = f"{matter} =" if drill else entry["question"]
            yield Demonstration(question + SEPARATOR, subject.solve(matter, style, rng), "drill" if drill else style)
