"""What was sampled against what was trained on: whatever drops groups or rollouts may select by what it should not.

Every scored group is booked when its fate is known, so nothing that is merely under way counts, and "sampled" is "trained" and
"lost" together. All figures are means over rollouts, of the whole run:

    length      decisions of a rollout
    success     1 if its task is solved, else 0
    difficulty  the share of all rollouts of its group, as sampled, that failed
    latency     decisions that came out of the engine from the dispatch of its group to its verdict, a clock that replays repeat

What a store brought back was not sampled for its step: it counts as trained alone, with a latency of 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gimbal.records import Group
from gimbal.report.metrics import passed

QUANTITIES = ("length", "success", "difficulty", "latency")
JUDGED = ("success", "difficulty")
TRAINED, REPLAYED = "trained", "replayed"


class Selection:
    """The books of one pipeline: ``dispatched``, ``scored``, then ``trained`` or ``lost``. A group that was not scored is left out."""

    def __init__(self) -> None:
        self.began: dict[int, int] = {}  # clock at the dispatch of a group
        self.pending: dict[int, list[float]] = {}  # of a scored group: difficulty, latency, rollouts, length, success
        self.sums: dict[str, list[float]] = {}  # by fate: rollouts, then the sum of each quantity

    def dispatched(self, index: int, clock: int) -> None:
        self.began[index] = clock

    def scored(self, group: Group, clock: int) -> None:
        count = len(group.episodes)
        solved = sum(passed(episode) for episode in group.episodes)
        length = sum(episode.length for episode in group.episodes)
        latency = clock - self.began.pop(group.index)
        self.pending[group.index] = [1 - solved / count, latency, count, length, solved]

    def trained(self, group: Group) -> None:
        """What is left of the group is trained on; rollouts that left it are lost to filters."""
        difficulty, latency, count, length, solved = self.pending.pop(group.index)
        own = [episode for episode in group.episodes if not episode.origin]
        kept = len(own)
        kept_length = sum(episode.length for episode in own)
        kept_solved = sum(passed(episode) for episode in own)
        self._book(TRAINED, kept, kept_length, kept_solved, difficulty, latency)
        if kept < count:
            self._book("filtered", count - kept, length - kept_length, solved - kept_solved, difficulty, latency)

    def replayed(self, group: Group) -> None:
        """Those of its episodes that a store brought back. Difficulty is that of the group's others, where there are any."""
        back = [episode for episode in group.episodes if episode.origin]
        if back:
            judged = [episode for episode in group.episodes if not episode.origin] or back
            difficulty = 1 - sum(map(passed, judged)) / len(judged)
            length, solved = sum(episode.length for episode in back), sum(map(passed, back))
            self._book(REPLAYED, len(back), length, solved, difficulty, 0.0)

    def lost(self, index: int, reason: str) -> None:
        self.began.pop(index, None)
        if index in self.pending:
            difficulty, latency, count, length, solved = self.pending.pop(index)
            self._book(reason, count, length, solved, difficulty, latency)

    def metrics(self, *, judged: bool = True) -> dict[str, float]:
        """``selection/sampled/X`` and ``selection/trained/X``; ``selection/lost/REASON``, the share of sampled rollouts lost to it;
        ``selection/replayed``, the share of those trained on that a store brought back.

        ``judged``: rollouts may be right or wrong; else there is no success and no difficulty.
        """
        metrics: dict[str, float] = {}
        drawn = {fate: sums for fate, sums in self.sums.items() if fate != REPLAYED}
        sampled, back = _added(drawn.values()), self.sums.get(REPLAYED, [])
        trained = _added([self.sums[fate] for fate in (TRAINED, REPLAYED) if fate in self.sums])
        for name, sums in (("sampled", sampled), (TRAINED, trained)):
            if sums and sums[0]:
                means = (total / sums[0] for total in sums[1:])
                found = zip(QUANTITIES, means, strict=True)
                metrics |= {f"selection/{name}/{q}": mean for q, mean in found if judged or q not in JUDGED}
        if back and trained[0]:
            metrics["selection/replayed"] = back[0] / trained[0]
        lost = {reason: sums[0] / sampled[0] for reason, sums in drawn.items() if reason != TRAINED and sampled[0]}
        return metrics | {f"selection/lost/{reason}": share for reason, share in lost.items()}

    def _book(self, fate: str, *row: float | int) -> None:
        """``row``: rollouts, the sums of their lengths and successes, and the group's difficulty and latency."""
        count, length, solved, difficulty, latency = row
        sums = self.sums.setdefault(fate, [0.0] * (1 + len(QUANTITIES)))
        for place, value in enumerate((count, length, solved, count * difficulty, count * latency)):
            sums[place] += value

    def state_dict(self) -> dict[str, Any]:
        pending = {index: list(row) for index, row in self.pending.items()}
        return {"began": dict(self.began), "pending": pending, "sums": {k: list(v) for k, v in self.sums.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.began, self.sums = dict(state["began"]), {k: list(v) for k, v in state["sums"].items()}
        self.pending = {index: list(row) for index, row in state["pending"].items()}


def _added(rows: Iterable[list[float]]) -> list[float]:
    return [sum(column) for column in zip(*rows, strict=True)]
