"""Diversity of sets of answers, credited to their members."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.records import Group
from gimbal.rewards.answers import extract
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class SetDiversity(AbstractReward):
    """Makes sets of a task's rollouts compete on diversity, and credits each member with its contribution (SGRPO, 2026; use with
    LeaveOneOut).

    A group's rollouts form ``sets`` sets of n in the order of their samples. D = mean pairwise distance in a set, c_i = D - D without
    i, B = D - mean of the other sets' D, z = c standardised in the set (ddof 1), up = n softmax(z / temperature), down = n
    softmax(-z / temperature).
    allocation "reward": d_i = D + max(B, 0) (up_i - 1) - max(-B, 0) (down_i - 1); "advantage": d_i = (M n - 1) / (M n) (max(B, 0) up_i
    - max(-B, 0) down_i), whose leave-one-out advantage is that bracket. ``credit`` False is up = down = 1.

    - weight 0: LeaveOneOut of the other rewards.
    - "reward": the mean of d over a set is D. "advantage" without credit: all members of a set share B.
    - identical answers: 0. An answer without text is left out of all distances; with fewer than two others, D = 0.

    Distance: "answer" is 0 for equal extracted answers, else 1; "text" is 1 - the shared part of the sets of character triples.
    Published: ``temperature`` 1, 8 sets of 12 to 64, weight 0.8 to 0.9 against 0.1 to 0.2 for utility; distances are those of
    molecules and proteins, ours those of text.

    Confidence: verified.
    """

    by_group: ClassVar[bool] = True
    is_method: ClassVar[bool] = True
    by_place: ClassVar[bool] = True

    sets: int = 2
    distance: Literal["answer", "text"] = "text"
    allocation: Literal["reward", "advantage"] = "reward"
    credit: bool = True
    temperature: float = 1.0
    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = "diversity"
    weight: float = 0.5

    def __post_init__(self) -> None:
        if self.sets < 2 or self.temperature <= 0:
            raise ValueError(
                f"SetDiversity has {self.sets} sets at temperature {self.temperature}; use at least two sets, and a temperature above 0"
            )

    def __call__(self, group: Group) -> list[float | None]:
        total = len(group.rollouts)
        if total % self.sets or total < 2 * self.sets:
            raise ValueError(
                f"{total} rollouts do not make {self.sets} equal sets of two or more: set num_generations to a multiple of sets"
            )
        size = total // self.sets
        keys = [self._key(rollout.text) for rollout in group.rollouts]
        chunks = [keys[i : i + size] for i in range(0, total, size)]
        diversity = [_diversity(chunk) for chunk in chunks]
        values: list[float | None] = []
        for chunk, own in zip(chunks, diversity, strict=True):
            ahead = own - (sum(diversity) - own) / (self.sets - 1)
            values += self._allocated(chunk, own, ahead, total)
        return values

    def _allocated(self, chunk: Sequence[frozenset[str]], own: float, ahead: float, total: int) -> list[float]:
        size = len(chunk)
        up = down = [1.0] * size
        if self.credit:
            gains = [own - _diversity([*chunk[:i], *chunk[i + 1 :]]) for i in range(size)]
            z = _standardised(gains)
            up, down = (_weights([sign * x / self.temperature for x in z]) for sign in (1, -1))
        better, worse = max(ahead, 0.0), max(-ahead, 0.0)
        if self.allocation == "reward":
            return [own + better * (u - 1) - worse * (d - 1) for u, d in zip(up, down, strict=True)]
        return [(total - 1) / total * (better * u - worse * d) for u, d in zip(up, down, strict=True)]

    def _key(self, text: str) -> frozenset[str]:
        """The key by which an answer is compared; empty if there is nothing to compare."""
        if self.distance == "answer":
            answer = extract(text, self.opening, self.closing)
            return frozenset() if answer is None else frozenset({answer})
        return frozenset(text[i : i + 3] for i in range(max(1, len(text) - 2))) if text else frozenset()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.sets < 2 or whole.run.num_generations % self.sets:
            yield Refusal(
                "SetDiversity compares sets of equal size: set num_generations to a multiple of its sets, and sets to 2 or more"
            )


def _diversity(keys: Sequence[frozenset[str]]) -> float:
    """Mean of 1 - shared / joint over the pairs of valid keys."""
    valid = [key for key in keys if key]
    pairs = [(a, b) for i, a in enumerate(valid) for b in valid[i + 1 :]]
    return sum(1 - len(a & b) / len(a | b) for a, b in pairs) / len(pairs) if pairs else 0.0


def _standardised(x: Sequence[float]) -> list[float]:
    mean = sum(x) / len(x)
    spread = math.sqrt(sum((v - mean) ** 2 for v in x) / max(1, len(x) - 1))
    return [(v - mean) / (spread + 1e-4) for v in x]


def _weights(x: Sequence[float]) -> list[float]:
    """Softmax times the count."""
    most = max(x)
    powers = [math.exp(v - most) for v in x]
    return [len(x) * power / sum(powers) for power in powers]
