"""Groups whose later rollouts continue earlier ones from the end of a turn where the opposite outcome is likely."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import FORK, READ
from gimbal.ops import philox
from gimbal.records import Drop, Episode, Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.workflows.base import AbstractWorkflow, Attempt, Read, Steps
from gimbal.workflows.over_rows import AbstractOverRows, goes_by
from gimbal.workflows.quality import UNTRAINED, QualityHead

Place = tuple[int, int]  # of a trunk among the trunks, and how many of its decisions are kept


@dataclass(frozen=True, kw_only=True)
class TurnBranching(AbstractOverRows, AbstractWorkflow):
    """Samples the first ``trunks`` rollouts of a group whole; each other one continues one of them from the end of a turn, where the
    opposite outcome is likely (the second stage of TRACE, arXiv:2606.11119).

    With V the predicted probability of success behind a turn and r the trunk's outcome, k continuations from there have the value

        1 - q^k,  q = r V + (1 - r)(1 - V),

    the probability that at least one of them ends otherwise than the trunk. They are placed one at a time where the next one adds most,
    q^k (1 - q); of equals, at the earlier trunk and the earlier turn. So the number of rollouts stays the group's. ``inside`` drives
    each row, its environment in the state that it had at the split.

    V is ``head``'s, from the policy's hidden state behind the turn. It learns whenever new weights arrive, by cross-entropy: from the
    outcome of each branch at its split, and of each trunk at one of its turns, drawn at random. A trunk's outcome at a split that was
    chosen by it would be biased, and is left out. ``reward`` says which are right (0.5 or more); without one, what the environment
    paid. No gradient reaches the policy. Each sampler process has its own head; V is 1/2 until it has learned.

    Log-probabilities: each counted decision is sampled from the policy given its context, and counts once, in the row that sampled it.
    Prefixes are chosen by their outcomes, so pass rates describe such groups, and evaluations must not use this workflow; LeafMean
    gives a prefix the mean of all outcomes behind it.

    - ``trunks`` at least the group's size: ``inside`` unchanged.
    - V = 1/2 everywhere: continuations are spread evenly over the ends of all turns.
    - a trunk of one turn: nothing is continued; if all are, the others are sampled from the prompt.

    Published: the value, greedy placing, 2 trunks. Ours: placing within each group instead of over all groups of a step, single
    outcomes instead of means of leaves, the head.

    Confidence: partial.
    """

    biased: ClassVar[str] = "TurnBranching continues rollouts where they may end otherwise"

    trunks: int = 2
    head: QualityHead = QualityHead()
    reward: AbstractReward | None = None

    def __post_init__(self) -> None:
        if self.trunks < 1:
            raise ValueError(f"TurnBranching.trunks is {self.trunks}; at least 1 rollout must be sampled whole")
        super().__post_init__()

    @property
    def requires(self) -> frozenset[str]:
        return self.inside.requires | {FORK, READ}

    def accepts(self, task: Any) -> None:
        super().accepts(task)
        if self.reward is not None:
            self.reward.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if self.reward is not None:
            yield from goes_by(self.reward, "TurnBranching", whole)
        elif whole.run.rewards:
            yield Refusal(
                f"TurnBranching goes by what its environment pays, but this run's score is {whole.run.rewards[0].name!r}: "
                "set workflow.reward to one of the run's rewards"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        first, others = attempt.samples[: self.trunks], attempt.samples[self.trunks :]
        outcomes: list[Episode | Drop] = yield [self.inside(attempt.of(sample)) for sample in first]
        trunks = {place: one.last for place, one in enumerate(outcomes) if isinstance(one, Episode) and not one.error}
        ends = [(place, at) for place, row in trunks.items() for at in turn_ends(row)]
        if not ends:
            return [*outcomes, *(yield [self.inside(attempt.of(sample)) for sample in others])]
        states = yield [Read(rows=(trunks[place],), at=at) for place, at in ends]
        state_of = {end: state_1H[0] for end, state_1H in zip(ends, states, strict=True)}
        chance_N = self.head.score(attempt.memory["head"], torch.stack(list(state_of.values()))).tolist()
        right = {place: self._right(attempt, row) for place, row in trunks.items()}
        splits = placed(
            {end: apart(right[end[0]], chance) for end, chance in zip(ends, chance_N, strict=True)}, len(others)
        )
        branches = yield [
            self.inside(attempt.of(sample, (trunks[place], at)))
            for sample, (place, at) in zip(others, splits, strict=True)
        ]
        for place in {place for place, _ in ends}:
            own = [end for end in ends if end[0] == place]
            drawn = own[int(philox("turn", attempt.seed, attempt.task.id, first[place]).integers(len(own)))]
            outcomes[place] = _read(outcomes[place], state_of[drawn])
        return [*outcomes, *(_read(one, state_of[split]) for one, split in zip(branches, splits, strict=True))]

    def _right(self, attempt: Attempt, row: Rollout) -> bool:
        (value,) = self._values(attempt, [row])
        return value is not None and value >= 0.5

    def _values(self, attempt: Attempt, rows: Sequence[Rollout]) -> list[float | None]:
        if self.reward is None:
            return [row.earned for row in rows]
        return self.reward(Group.of(attempt.group, attempt.task, rows))

    def begin(self) -> Mapping[str, Any]:
        return {"head": UNTRAINED, "ended": ()}

    def remember(self, memory: Mapping[str, Any], attempt: Attempt, rows: Sequence[Rollout]) -> Mapping[str, Any]:
        """With the states and outcomes of these, to be learned from once new weights arrive."""
        read = [row for row in rows if row.state_H is not None]
        return self.head.noted(memory, attempt.group, read, self._values(attempt, read) if read else [])

    def renewed(self, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.head.renewed(memory)


def turn_ends(row: Rollout) -> list[int]:
    """How many of its decisions there are before each turn but the first."""
    if row.turn_S is None:
        return []
    turn_S, mask_S = row.turn_S.tolist(), row.mask_S.tolist()
    return [at for at in range(1, len(turn_S)) if turn_S[at] != turn_S[at - 1] and mask_S[at]]


def apart(right: bool, chance: float) -> float:
    """1 - q: the probability that one continuation ends otherwise than its trunk."""
    return 1 - chance if right else chance


def placed(apart_of: Mapping[Place, float], count: int) -> list[Place]:
    """Where ``count`` continuations split off: each where it adds most to the probability that one ends otherwise."""
    many = dict.fromkeys(apart_of, 0)
    for _ in range(count):
        most = max(
            many, key=lambda end: ((1 - apart_of[end]) ** many[end] * apart_of[end], -many[end], *(-n for n in end))
        )
        many[most] += 1
    return [end for end, number in many.items() for _ in range(number)]


def _read(outcome: Episode | Drop, state_H: Tensor) -> Episode | Drop:
    if isinstance(outcome, Drop):
        return outcome
    return replace(outcome, rows=(*outcome.rows[:-1], replace(outcome.last, state_H=state_H.clone())))
