"""Predicts a new prompt's success from the policy's recent record, and allocates rollouts by it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from gimbal.composition import Advice, Composition, Verdict
from gimbal.config.own import started
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumAround, AbstractCurriculumSpec
from gimbal.dataflow.budgets.fixed import COLUMN
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.curricula.tracked import COLUMN as EXPECTED
from gimbal.environments.base import AbstractTasks
from gimbal.ops.allocation import allocate, mixed_failures
from gimbal.records import Group, Task

WIDTH = 256  # of the features of a text


def text_features(text: str) -> Float[np.ndarray, " F"]:
    """Square roots of the counts of its characters and pairs of characters, hashed."""
    pieces = [*text, *(text[i : i + 2] for i in range(len(text) - 1))]
    return np.sqrt(np.bincount([zlib.crc32(piece.encode()) % WIDTH for piece in pieces], minlength=WIDTH))


def predict(
    query_PF: Float[np.ndarray, "P F"],
    context_CF: Float[np.ndarray, "C F"],
    reward_C: Float[np.ndarray, " C"],
    size_C: Float[np.ndarray, " C"],
    noise: float,
) -> Float[np.ndarray, " P"]:
    """Gaussian process on the context: its mean reward, plus what similar prompts earned above or below it; clipped to [0, 1].

    The kernel is exp(-d^2 / median d^2) on features of mean 0 and scale 1; a pair that is the mean of n rewards has noise / n. Without
    a context it returns 1/2, far from it the context's mean.
    """
    if not len(reward_C):
        return np.full(len(query_PF), 0.5)
    mean_F, scale_F = context_CF.mean(0), context_CF.std(0)
    scale_F[scale_F == 0] = np.inf  # tells nothing of the context's prompts apart
    x_CF, q_PF = ((z - mean_F) / scale_F for z in (context_CF, query_PF))
    near_CC, near_PC = _squares(x_CF, x_CF), _squares(q_PF, x_CF)
    apart = near_CC[near_CC > 1e-9]
    width = np.median(apart) if len(apart) else 1.0
    middle = np.average(reward_C, weights=size_C)
    system_CC = np.exp(-near_CC / width) + np.diag(noise / size_C)
    found_P = middle + np.exp(-near_PC / width) @ np.linalg.solve(system_CC, reward_C - middle)
    return np.clip(found_P, 0, 1).round(6)  # so that prompts alike are equal


def _squares(a_PF: Float[np.ndarray, "P F"], b_CF: Float[np.ndarray, "C F"]) -> Float[np.ndarray, "P C"]:
    """Squared distances of all pairs."""
    squares = np.square(a_PF).sum(-1)[:, None] + np.square(b_CF).sum(-1) - 2 * a_PF @ b_CF.T
    return np.maximum(squares, 0)


@dataclass(frozen=True, kw_only=True)
class Allocated(AbstractCurriculumSpec):
    """Gives rollouts to prompts whose groups are likely to be mixed, by a value model that is never trained (V_0, arXiv:2602.03584).

    p = the probability of success, from only the prompt and the last ``context`` pairs of (prompt, mean reward): the record represents
    the policy, and changes with it. For every ``prompts`` consecutive tasks, ``prompts`` x ``rollouts`` rollouts are allocated greedily
    by U(B, p) = B (1 - p) (1 - (1 - p)^(B - 1)), from ``least`` to ``most`` each. A task carries its number in the column
    ``num_generations``, and p in ``expected``, which rewards.Expected may read.

    - no context yet, or p of 1/2 everywhere: ``rollouts`` for each task.
    - p = 0 or p = 1: ``least``; if all tasks are such, the rest is not spent.
    - ``least`` = ``most`` = ``rollouts``: only the order.

    U weights hard prompts more than easy ones, and its first increments grow, so gains are averaged over the next few. ``prompts`` and
    ``rollouts`` are the run's prompts_per_step and num_generations. It uses the reward ``name``, or the whole score if it is empty,
    clipped to [0, 1]. Features are the numbers in the task's column ``features``, or counts of the prompt's characters if that is
    empty.

    Published: a context of 256, of which 128 do not suffice; the classifier is a pretrained one over trained embeddings.

    Confidence: partial; U and its use are verified; ours: the Gaussian process that predicts p, ``noise``, ``least`` and ``most``.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    order: AbstractCurriculumSpec = Epochs()
    prompts: int = 16
    rollouts: int = 8
    least: int = 2
    most: int = 32
    context: int = 256
    noise: float = 1.0
    name: str = ""
    features: str = ""

    def __post_init__(self) -> None:
        if not 2 <= self.least <= self.rollouts <= self.most:
            raise ValueError(
                f"Allocated gives {self.least} to {self.most} rollouts, {self.rollouts} on average: let 2 <= least <= rollouts <= most"
            )
        if self.prompts < 1 or self.context < 1 or self.noise <= 0:
            raise ValueError(
                f"Allocated has prompts {self.prompts} and context {self.context} (at least 1) and noise {self.noise} (above 0)"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> AllocatedCurriculum:
        return AllocatedCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed))

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if (self.prompts, self.rollouts) != (whole.run.prompts_per_step, whole.run.num_generations):
            yield Advice(
                "Allocated allocates a different number of rollouts than a batch holds: set prompts and rollouts to the run's"
            )


class AllocatedCurriculum(AbstractCurriculumAround):
    """The live half of ``Allocated``."""

    def __init__(self, spec: Allocated, order: AbstractCurriculum) -> None:
        self.spec, self.order = spec, order
        self.taken: list[Task] = []  # of the next round: they stay if the one after them cannot be read
        self.ready: list[Task] = []  # with their shares
        self.context: list[tuple[list[float], float, int]] = []  # features, mean reward, rollouts

    def next(self) -> Task:
        if not self.ready:
            while len(self.taken) < self.spec.prompts:
                self.taken.append(self.order.next())
            tasks, self.taken = self.taken, []
            chance_P = self.predict(tasks)
            utility_PB = mixed_failures(self.spec.most, chance_P)
            count_P = allocate(utility_PB, self.spec.prompts * self.spec.rollouts, self.spec.least)
            for task, chance, count in zip(tasks, chance_P, count_P, strict=True):
                shares = {COLUMN: int(count), EXPECTED: float(chance)}
                self.ready.append(replace(task, columns={**task.columns, **shares}))
        return self.ready.pop(0)

    def predict(self, tasks: Sequence[Task]) -> Float[np.ndarray, " P"]:
        query_PF = np.array([self._features(task) for task in tasks], dtype=float)
        context_CF = np.array([x for x, _, _ in self.context], dtype=float).reshape(-1, query_PF.shape[1])
        reward_C, size_C = (np.array([pair[n] for pair in self.context], dtype=float) for n in (1, 2))
        return predict(query_PF, context_CF, reward_C, size_C, self.spec.noise)

    def observe(self, group: Group) -> None:
        self.order.observe(group)
        name = self.spec.name
        earned = [rollout.scores[name] if name else rollout.earned for rollout in group.episodes]
        reward = float(np.clip(earned, 0, 1).mean())
        self.context = [*self.context, (self._features(group.task), reward, len(earned))][-self.spec.context :]

    def _features(self, task: Task) -> list[float]:
        if self.spec.features:
            return [float(x) for x in task.columns[self.spec.features]]
        return [float(x) for x in text_features(task.prompt)]

    def state_dict(self) -> dict[str, Any]:
        return {
            "order": self.order.state_dict(),
            "taken": list(self.taken),
            "ready": list(self.ready),
            "context": list(self.context),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.order.load_state_dict(state["order"])
        self.taken = list(state["taken"])
        self.ready, self.context = list(state["ready"]), [(list(x), r, n) for x, r, n in state["context"]]
