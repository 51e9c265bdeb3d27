"""Selection bias: how the task list, the tasks asked, the rollouts sampled and those trained on differ.

Every scored group is counted once its fate is known, so work in progress does not count, and "sampled" is "trained" plus
"lost". All figures are means over the whole run:

    listed      over tasks, each once with the mean of its groups: the task list, as far as it was seen
    asked       over groups: what the curriculum chose from the list
    sampled     over rollouts: what the budget chose for them
    trained     over rollouts: what filters and staleness rules left of these, plus what a store replayed

    length      decisions of a rollout
    success     1 if its task is solved, else 0
    difficulty  the share of failures among all sampled rollouts of its group
    latency     decisions that the engine produced between its group's dispatch and verdict, a clock that replays reproduce

The first two are written once they can differ from the next: a task was repeated, or group sizes differ. A policy that
learns makes tasks easier, so a task asked only early is listed as harder than it has become. Replayed rollouts were
not sampled for their step: they count only as trained, with a latency of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gimbal.records import Episode, Group
from gimbal.report.metrics import passed

QUANTITIES = ("length", "success", "difficulty", "latency")
JUDGED = ("success", "difficulty")
TRAINED, REPLAYED = "trained", "replayed"
MOST_TASKS = 200_000  # tasks whose figures are kept; later ones are not listed


class Selection:
    """One pipeline's counts: ``dispatched``, ``scored``, then ``trained`` or ``lost``. Groups that were not scored are left out."""

    def __init__(self) -> None:
        self.began: dict[int, int] = {}  # clock at the dispatch of a group
        # Per scored group: task; rollouts, then sums of the quantities.
        self.pending: dict[int, tuple[str, list[float]]] = {}
        self.sums: dict[str, list[float]] = {}  # by fate: rollouts, then the sum of each quantity
        self.asked = [0.0] * (1 + len(QUANTITIES))  # groups, then the sum of their means
        self.tasks: dict[str, list[float]] = {}  # per task: groups, then the sums of their means
        self.smallest, self.largest = 0, 0  # rollouts of a group

    def dispatched(self, index: int, clock: int) -> None:
        self.began[index] = clock

    def scored(self, group: Group, clock: int) -> None:
        latency = clock - self.began.pop(group.index)
        difficulty = 1 - sum(passed(episode) for episode in group.episodes) / len(group.episodes)
        self.pending[group.index] = group.task.id, [*_sums(group.episodes), difficulty, float(latency)]

    def trained(self, group: Group) -> None:
        """Count what is left of the group as trained; rollouts that left it are lost to filters."""
        *sampled, difficulty, latency = self._settle(group.index)
        kept = _sums([episode for episode in group.episodes if not episode.origin])
        self._book(TRAINED, [*kept, difficulty, latency])
        if kept[0] < sampled[0]:
            gone = (whole - part for whole, part in zip(sampled, kept, strict=True))
            self._book("filtered", [*gone, difficulty, latency])

    def replayed(self, group: Group) -> None:
        """Its replayed episodes. Difficulty is that of the group's other episodes, if any."""
        back = [episode for episode in group.episodes if episode.origin]
        if back:
            judged = [episode for episode in group.episodes if not episode.origin] or back
            self._book(REPLAYED, [*_sums(back), 1 - sum(map(passed, judged)) / len(judged), 0.0])

    def lost(self, index: int, reason: str) -> None:
        self.began.pop(index, None)
        if index in self.pending:
            self._book(reason, self._settle(index))

    def metrics(self, *, judged: bool = True) -> dict[str, float]:
        """``selection/POPULATION/X``, with the populations as above; ``selection/listed/tasks``, how many were seen;
        ``selection/lost/REASON``, the share of sampled rollouts lost to it; ``selection/replayed``, the share of trained ones that
        a store replayed.

        ``judged``: rollouts may be right or wrong; otherwise there is no success and no difficulty.
        """
        metrics: dict[str, float] = {}
        drawn = {fate: sums for fate, sums in self.sums.items() if fate != REPLAYED}
        sampled, back = _total(drawn.values()), self.sums.get(REPLAYED, [])
        trained = _total([self.sums[fate] for fate in (TRAINED, REPLAYED) if fate in self.sums])
        populations = {"sampled": sampled, TRAINED: trained}
        again = self.asked[0] > len(self.tasks) > 0
        if again or self.largest > self.smallest:
            populations["asked"] = self.asked
        if again and len(self.tasks) < MOST_TASKS:
            populations["listed"] = self._listed()
            metrics["selection/listed/tasks"] = float(len(self.tasks))
        for name, sums in populations.items():
            if sums and sums[0]:
                means = (total / sums[0] for total in sums[1:])
                found = zip(QUANTITIES, means, strict=True)
                metrics |= {f"selection/{name}/{q}": mean for q, mean in found if judged or q not in JUDGED}
        if back and trained[0]:
            metrics["selection/replayed"] = back[0] / trained[0]
        lost = {reason: sums[0] / sampled[0] for reason, sums in drawn.items() if reason != TRAINED and sampled[0]}
        return metrics | {f"selection/lost/{reason}": share for reason, share in lost.items()}

    def _settle(self, index: int) -> list[float]:
        """Its pending counts, once its fate is known: only now does it count as asked."""
        task, row = self.pending.pop(index)
        count, length, solved, difficulty, latency = row
        self.smallest, self.largest = min(self.smallest or int(count), int(count)), max(self.largest, int(count))
        means = [1.0, length / count, solved / count, difficulty, latency]
        self.asked = _added(self.asked, means)
        if task in self.tasks or len(self.tasks) < MOST_TASKS:
            self.tasks[task] = _added(self.tasks.get(task, [0.0] * len(means)), means)
        return row

    def _listed(self) -> list[float]:
        """Tasks, then the sums of their means, independent of arrival order."""
        columns = zip(*(self.tasks[task] for task in sorted(self.tasks)), strict=True)
        groups, *totals = map(list, columns)
        return [float(len(groups)), *(sum(t / n for t, n in zip(total, groups, strict=True)) for total in totals)]

    def _book(self, fate: str, row: Sequence[float]) -> None:
        """The part of the pending ``row`` for the rollouts with this fate."""
        count, length, solved, difficulty, latency = row
        sums = [count, length, solved, count * difficulty, count * latency]
        self.sums[fate] = _added(self.sums.get(fate, [0.0] * len(sums)), sums)

    def state_dict(self) -> dict[str, Any]:
        return {
            "began": dict(self.began),
            "pending": dict(self.pending),
            "sums": {fate: list(sums) for fate, sums in self.sums.items()},
            "asked": list(self.asked),
            "tasks": {task: list(sums) for task, sums in self.tasks.items()},
            "sizes": [self.smallest, self.largest],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.began, self.sums = dict(state["began"]), {k: list(v) for k, v in state["sums"].items()}
        self.pending = {index: (task, list(sums)) for index, (task, sums) in state["pending"].items()}
        self.asked, (self.smallest, self.largest) = list(state["asked"]), state["sizes"]
        self.tasks = {task: list(sums) for task, sums in state["tasks"].items()}


def _sums(episodes: Sequence[Episode]) -> list[float]:
    """Rollouts, and the sums of their lengths and successes."""
    length = sum(episode.length for episode in episodes)
    return [float(len(episodes)), float(length), float(sum(map(passed, episodes)))]


def _added(left: Sequence[float], right: Sequence[float]) -> list[float]:
    return [a + b for a, b in zip(left, right, strict=True)]


def _total(rows: Iterable[Sequence[float]]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]
