"""How many groups in a row may be dropped, and what to say when there is nothing left to train on."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from gimbal.records import Drop, Task

MOST_TOLD = 3  # causes
MOST_COMPARED = 150  # characters of what is said of a failure
# Reasons of filters that judge by the scores: then tasks are too hard or too easy.
BY_SCORES = frozenset({"zero_variance", "all_wrong", "solved", "no_success", "no_trade_off", "no_right_steps"})


def _cause(drop: Drop) -> tuple[str, str]:
    """The same for failures alike: what was printed and the numbers of a task may differ."""
    return drop.reason, re.sub(r"\d+", "#", drop.said[:MOST_COMPARED])


class Starved(ValueError):
    """Too many groups in a row were dropped: there is nothing to learn from."""


class Patience:
    """What befell the groups that were dropped in a row.

    All of it is of this process and in no checkpoint. Who resumes such a run has repaired something: with the old count the first drop
    would end it, and the errors of before would be told as its reason.
    """

    def __init__(
        self,
        limit: int,
        *,
        least: int,
        rewards: Sequence[str] = (),
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.limit, self.least, self.rewards, self.note = limit, least, rewards, note
        self.befell: Counter[str] = Counter()  # reasons of the groups dropped in a row
        self.rollouts: Counter[str] = Counter()  # reasons of the rollouts that left a group since one got through
        self.broke: Drop | None = None  # the latest broken episode
        self.causes: Counter[tuple[str, str]] = Counter()  # of broken episodes; the user is told of each once

    @property
    def in_a_row(self) -> int:
        return sum(self.befell.values())

    def passed(self) -> None:
        """One group that gets through shows that the filters can be passed."""
        self.befell.clear()
        self.rollouts.clear()

    def dropped(self, reason: str, drops: Mapping[str, int]) -> None:
        """Count a dropped group. Raises Starved after too many; ``drops`` are the counts of the whole run, for its sentence."""
        self.befell[reason] += 1
        if self.in_a_row >= self.limit:
            raise Starved(self.sentence(drops))

    def broken(self, task: Task, drop: Drop) -> None:
        """Tell the user of the first few causes, of each once."""
        self.broke = drop
        self.causes[_cause(drop)] += 1
        if self.causes[_cause(drop)] == 1 and len(self.causes) <= MOST_TOLD:
            alike = "others" if len(self.causes) == MOST_TOLD else "others like it"
            self.note(
                f"a rollout of task {drop.task or task.id} failed and was removed from its group ({drop.reason}): {drop.said}; {alike} "
                "are only counted, in drops/rollouts/REASON"
            )

    def sentence(self, drops: Mapping[str, int]) -> str:
        reasons = ", ".join(f"{count} {reason}" for reason, count in Counter(drops).most_common())
        all_gone = (
            f"the last {self.in_a_row} groups were all dropped (in all: {reasons}), so there is nothing to train on. "
        )
        main, count = self.befell.most_common(1)[0]
        took, taken = next(iter(self.rollouts.most_common(1)), ("", 0))
        if self.broke is not None and self.broke.reason in (main, took if main == "too_few" else main):
            count = self.causes[_cause(self.broke)]
            often = f" ({count} rollouts failed like this)" if count > 1 else ""
            return f"{all_gone}Their rollouts failed, most recently with: {self.broke.said}{often}"
        if main == "unscored":
            return (
                f"{all_gone}The reward {' and '.join(self.rewards)} returned None, which is no score, for every completion of {count} "
                "of them: return a number for each completion that it can judge (0.0 for a wrong one)"
            )
        if main == "too_few":
            return (
                f"{all_gone}Of {count} of them fewer than {self.least} rollouts were left, which the advantage cannot compare"
                + (f"; {took} took {taken} of their rollouts" if took else "")
                + ": let more rollouts stay, or raise num_generations"
            )
        if main not in BY_SCORES:
            return f"{all_gone}{count} of these {self.in_a_row} were dropped as {main}, whatever their scores: change what does so"
        return (
            f"{all_gone}If every answer fails, the tasks are too hard for this policy or the reward never pays; if every answer is "
            "correct, they are too easy: try `gimbal eval`, other tasks, more generations, or a recipe without the filter"
        )
