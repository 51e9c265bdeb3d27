"""Groups of nothing but failures are given a success of old."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, Judge, replayed, replaying
from gimbal.dataflow.staleness import DropStale
from gimbal.ops import philox
from gimbal.records import Episode, Group

Kept = tuple[int, Episode]  # the group that it was drawn for, and the episode


@dataclass(frozen=True, kw_only=True)
class Successes(AbstractStoreSpec):
    """A group that failed gets one stored success of its task in the place of its first rollout (ARPO, arXiv:2505.16282).

    With r the scores of a group: where std(r) < ``spread`` and mean(r) < ``low``, one of the successes that are held for the task, each
    as likely as any other, takes the place of the first rollout (of the first that no other one branched off, in a tree), or with
    ``add`` stands behind the last (DART, arXiv:2509.23866). After
    that every episode drawn for the group with r > ``least`` is held: the newest ``each`` of a task, by the order of dispatch, and
    ``capacity`` in all, the oldest leaving first. Before the filters, so a group that was saved passes ZeroVariance.

    Its age stays its age: it keeps the versions and log-probabilities that it was drawn with. None is taken that would be more than
    ``max_age`` versions old when its group is trained on at the latest, and what is older at a step is let go (``replay/expired``).

    - nothing held for the task, or a success in the group: the group as it is; ``low`` = 0 or ``spread`` = 0: always.
    - ``max_age`` = 0: nothing is ever taken.

    Published: ``each`` 8, ``least`` 0.1, ``spread`` 0.05, ``low`` 0.2, old log-probabilities taken anew at the update, so a ratio of 1.
    Ours: weights by the true ones, which a run must have; ``max_age`` and ``capacity``.

    Confidence: verified.
    """

    each: int = 8
    capacity: int = 4096
    max_age: int = 16
    least: float = 0.1
    spread: float = 0.05
    low: float = 0.2
    add: bool = False

    def __post_init__(self) -> None:
        if self.each < 1 or self.capacity < 1 or self.max_age < 0:
            raise ValueError(
                f"Successes has each={self.each}, capacity={self.capacity} and max_age={self.max_age}; the first two count episodes, "
                "at least 1, the last versions, 0 or above"
            )

    def most_age(self, max_staleness: int) -> int:
        return max(max_staleness, self.max_age)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from replaying(self, whole)
        if whole.has(DropStale):
            yield Refusal(
                "DropStale would drop each group that Successes gives something older than max_staleness: staleness=Pace()"
            )

    def start(self, seed: int) -> SuccessStore:
        return SuccessStore(self, seed)


class SuccessStore(AbstractStore):
    """By task, in the order in which their groups were dispatched."""

    def __init__(self, spec: Successes, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.held: dict[str, list[Kept]] = {}
        self.counts = {"used": 0, "expired": 0, "evicted": 0}

    def fix(self, group: Group, latest: int) -> Group:
        fixed = self._fixed(group, latest)
        for episode in group.episodes:
            if episode.earned > self.spec.least and not episode.error:
                self._keep(group, episode)
        return fixed

    def _fixed(self, group: Group, latest: int) -> Group:
        scores = [episode.earned for episode in group.episodes]
        if statistics.pstdev(scores) >= self.spec.spread or statistics.fmean(scores) >= self.spec.low:
            return group
        young = [kept for _, kept in self.held.get(group.task.id, []) if latest - kept.oldest <= self.spec.max_age]
        if not young:
            return group
        taken = young[int(philox("successes", self.seed, group.index).integers(len(young)))]
        self.counts["used"] += 1
        if self.spec.add:
            last = max(episode.sample for episode in group.episodes)
            return replace(group, episodes=(*group.episodes, replayed(taken, last + 1, alone=True)))
        # Not of a trunk: its branches would be said to have split off the stored one, and to share its first decisions.
        trunks = {row.fork[0] for e in group.episodes for row in e.rows if row.fork and row.fork[0] != e.sample}
        first = next(n for n, e in enumerate(group.episodes) if e.sample not in trunks)
        episodes = list(group.episodes)
        episodes[first] = replayed(taken, episodes[first].sample, alone=True)
        return replace(group, episodes=tuple(episodes))

    def _keep(self, group: Group, episode: Episode) -> None:
        own = sorted([*self.held.get(group.task.id, []), (group.index, episode)], key=_order)
        self.held[group.task.id] = own[-self.spec.each :]
        self.counts["evicted"] += len(own) > self.spec.each
        if sum(map(len, self.held.values())) > self.spec.capacity:
            # By the order of dispatch and not of arrival, which hangs on who was slow.
            oldest = min(self.held, key=lambda task: _order(self.held[task][0]))
            self._leave(oldest, self.held[oldest][1:])
            self.counts["evicted"] += 1

    def join(self, groups: Sequence[Group], version: int, judge: Judge) -> list[Group]:
        for task, own in list(self.held.items()):
            young = [kept for kept in own if version - kept[1].oldest <= self.spec.max_age]
            self.counts["expired"] += len(own) - len(young)
            self._leave(task, young)
        return list(groups)

    def _leave(self, task: str, those: list[Kept]) -> None:
        if those:
            self.held[task] = those
        else:
            del self.held[task]

    def metrics(self) -> dict[str, float]:
        held = float(sum(map(len, self.held.values())))
        return {"replay/held": held} | {f"replay/{name}": float(count) for name, count in self.counts.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"held": {task: list(own) for task, own in self.held.items()}, "counts": dict(self.counts)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.held = {task: list(own) for task, own in state["held"].items()}
        self.counts = dict(state["counts"])


def _order(kept: Kept) -> tuple[int, int]:
    return kept[0], kept[1].sample
