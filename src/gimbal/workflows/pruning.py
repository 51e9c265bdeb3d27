"""Prunes rollouts early by a prediction of whether they will be right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Verdict
from gimbal.engines.base import CONTINUE, DRAW, READ
from gimbal.ops import philox
from gimbal.records import Drop, Episode, Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Attempt, Draw, Read, Steps
from gimbal.workflows.over_rows import evaluated_otherwise, goes_by
from gimbal.workflows.quality import UNTRAINED, QualityHead, survival


@dataclass(frozen=True, kw_only=True)
class Pruning(AbstractWorkflow):
    """After ``at`` tokens keeps each rollout with a probability that falls with its predicted success, ``keep`` on average (ARRoL,
    arXiv:2603.24840).

    p_i = clip(keep + delta + strength (aim - q_i), least, most), with the delta that makes the mean of p over the group ``keep``.

    q_i is the probability of success that ``head`` predicts from the policy's hidden state at token ``at``. Pruned rollouts free their
    slot at once, and are counted as drops/rollouts/pruned. A rollout that ends before ``at`` is kept. The head learns whenever new
    weights arrive, from the rollouts that ended since, by cross-entropy; ``reward`` says which are right (0.5 or more). Nothing is
    pruned before it has learned ``warm_up`` times. No gradient reaches the policy. Each sampler process has its own head.

    Log-probabilities: each is the policy's own. What is left is no sample of the policy, as published; advantages.InclusionNormalized
    weights it by 1 / p_i (``inclusion``), which is right in expectation up to a bias: delta makes p_i depend on the whole group, and
    not on the rollout alone. The head needs no weights: whether a rollout is left depends on what it
    reads. Pass rates describe what is left, and evaluations must not use this workflow.

    Since delta fixes the mean, ``aim`` acts only through the clip: where most rollouts fail, the rule prunes the few that may succeed.

    - ``keep`` = 1: SingleTurn, bit for bit.
    - ``strength`` = 0: random pruning, p_i = ``keep``.

    Published: ``at`` 512, keep 0.5, aim 0.5, strength 0.5, p from 0.1 to 0.9, 16 rollouts, 20 steps of warm-up.

    Confidence: verified.
    """

    at: int = 512
    keep: float = 0.5
    strength: float = 0.5
    aim: float = 0.5
    least: float = 0.1
    most: float = 0.9
    warm_up: int = 20
    head: QualityHead = QualityHead()
    reward: AbstractReward = ExactAnswer()

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most <= 1 or not (self.least <= self.keep <= self.most or self.keep == 1):
            raise ValueError(
                f"Pruning keeps {self.keep} of the rollouts, each with a probability from {self.least} to {self.most}: let "
                "0 < least <= keep <= most <= 1, or keep=1"
            )
        if self.at < 1 or self.warm_up < 0 or not 0 <= self.strength < math.inf or not 0 <= self.aim <= 1:
            raise ValueError(
                f"Pruning has at {self.at} (1 or more), warm_up {self.warm_up} and strength {self.strength} (0 or above, finite) and "
                f"aim {self.aim} (from 0 to 1)"
            )

    @property
    def whole(self) -> bool:
        return True

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE, READ})

    def accepts(self, task: Any) -> None:
        self.reward.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise("Pruning drops rollouts by what it expects of them", whole)
        yield from goes_by(self.reward, "Pruning", whole)

    def __call__(self, attempt: Attempt) -> Steps:
        paused = self.keep < 1
        rows = yield [attempt.of(sample).begin(most=self.at if paused else None) for sample in attempt.samples]
        going = [row for row in rows if row.stop == PAUSED]
        if not going:
            return [Episode.of(row) for row in rows]
        state_NH = yield Read(rows=tuple(going), at=self.at)
        chance_N = self.chances(attempt.memory["head"], state_NH)
        outcomes: dict[int, Episode | Drop] = {row.sample: Episode.of(row) for row in rows if row.stop != PAUSED}
        kept: list[Rollout] = []
        for row, state_H, chance in zip(going, state_NH, chance_N.tolist(), strict=True):
            if philox("pruning", attempt.seed, attempt.task.id, row.sample).random() < chance:
                kept.append(replace(row, inclusion=chance, state_H=state_H.clone()))
            else:
                outcomes[row.sample] = Drop("pruned", drawn=row.drawn)
        ended = yield [Draw(row=row) for row in kept]
        for before, row in zip(kept, ended, strict=True):
            outcomes[row.sample] = Episode.of(replace(row, inclusion=before.inclusion, state_H=before.state_H))
        return [outcomes[sample] for sample in attempt.samples]

    def chances(self, head: Mapping[str, Any], state_NH: Float[Tensor, "N H"]) -> Float[Tensor, " N"]:
        """The survival probability of each of a group's rollouts."""
        if head["rounds"] < self.warm_up or not head["weights"]:
            return torch.ones(len(state_NH), dtype=torch.float64)
        quality_N = self.head.quality(head, self.head.score(head, state_NH))
        return survival(self.strength * (self.aim - quality_N), self.keep, self.least, self.most)

    def begin(self) -> Mapping[str, Any]:
        return {"head": UNTRAINED, "ended": ()}

    def remember(self, memory: Mapping[str, Any], attempt: Attempt, rows: Sequence[Rollout]) -> Mapping[str, Any]:
        """With the states and outcomes of these, to be learned from once new weights arrive."""
        read = [row for row in rows if row.state_H is not None]
        values = self.reward(Group.of(attempt.group, attempt.task, read)) if read else []
        return self.head.noted(memory, attempt.group, read, values)

    def renewed(self, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.head.renewed(memory)
