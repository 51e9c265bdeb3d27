"""Whether the reasoning leads to the same answer when the options are in another order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import ClassVar

from gimbal.ops import philox
from gimbal.records import Group, Rollout, Task
from gimbal.rewards.answers import extract
from gimbal.rewards.asking import fill
from gimbal.rewards.base import AbstractReward


@dataclass(frozen=True, kw_only=True)
class AnswerConsistency(AbstractReward):
    """Full reward for a correct answer only if the same reasoning gives it again with shuffled options (ACRE, arXiv:2510.10104).

    The policy is asked a second time: ``template`` with {options} in a different order, and {stem}, followed by what the rollout wrote
    before its answer. r = 1 + bonus if both answers are right, ``first`` if only the first is, ``wrong`` if both mean the same wrong
    option, else 0. Answers are compared by meaning: a letter stands for its option. The second answer is never trained on. The task
    needs the columns ``options`` (a list) and ``stem``, and its prompt lists the options in the column's order, each with its letter.
    Not applicable to tasks without these columns, or with a single option.

    - ``bonus`` = 0, ``first`` = 1, ``wrong`` = 0: only the first answer counts.
    - ``bonus`` = 0, ``first`` = 0, ``wrong`` = 1, weight 0: a measure, the share of answers that survive shuffling.

    Reasoning that names an option by its letter is misled by the shuffling, even if sound. This is intended.

    Confidence: partial; the order of cases is read; ours: the three coefficients.
    """

    is_method: ClassVar[bool] = True

    bonus: float = 0.5
    first: float = 0.5
    wrong: float = 0.0
    template: str = "{options}\n{stem}"
    opening: str = "<answer>"
    closing: str = "</answer>"
    name: str = "consistent"

    def __post_init__(self) -> None:
        if not 0 <= self.wrong <= 1 or not 0 <= self.first <= 1 + self.bonus:
            raise ValueError(
                f"AnswerConsistency pays {1 + self.bonus} for two right answers, {self.first} for only the first and {self.wrong} "
                "for the same wrong one twice: the first is at most as much as both, and wrong lies between 0 and 1"
            )

    def follow_ups(self, group: Group) -> list[Task]:
        asked = enumerate(self._asked(group))
        return [self._again(group, rollout, n) for n, rollout in asked]

    def __call__(self, group: Group) -> list[float | None]:
        task = group.task
        options = self._options(task)
        if len(options) < 2 or task.answer is None:
            return [None] * len(group.rollouts)
        said = {r.sample: text for r, text in zip(self._asked(group), group.replies.get(self.name, ()), strict=True)}
        return [self._value(group, rollout, said.get(rollout.sample)) for rollout in group.rollouts]

    def _value(self, group: Group, rollout: Rollout, reply: str | None) -> float:
        if reply is None:
            return 0.0
        options, right = self._options(group.task), str(group.task.answer).strip()
        one = meaning(extract(rollout.text, self.opening, self.closing), options)
        two = meaning(
            extract(self._thought(rollout) + reply, self.opening, self.closing), self._shuffled(group, rollout)
        )
        if one == right:
            return 1 + self.bonus if two == right else self.first
        return self.wrong if one == two else 0.0

    def _asked(self, group: Group) -> list[Rollout]:
        """The rollouts that gave an answer, if the task has options to shuffle."""
        if len(self._options(group.task)) < 2 or group.task.answer is None:
            return []
        return [r for r in group.rollouts if extract(r.text, self.opening, self.closing) is not None]

    def _again(self, group: Group, rollout: Rollout, number: int) -> Task:
        task, options = group.task, self._shuffled(group, rollout)
        lines = "\n".join(f"{letter}. {option}" for letter, option in zip(ascii_uppercase, options, strict=False))
        prompt = fill(self.template, task, {"options": lines}) + self._thought(rollout)
        return Task(
            id=f"{task.id}:{self.name}:{number}", prompt=prompt, answer=task.answer, source=task.source, seed=task.seed
        )

    def _thought(self, rollout: Rollout) -> str:
        return rollout.text[: rollout.text.rfind(self.opening)] if self.opening else ""

    def _shuffled(self, group: Group, rollout: Rollout) -> list[str]:
        """The options in a different order."""
        options = self._options(group.task)
        stream = philox(self.name, group.task.id, group.index, rollout.sample)
        order = list(range(len(options)))
        while order == sorted(order):
            order = stream.permutation(len(options)).tolist()
        return [options[place] for place in order]

    def _options(self, task: Task) -> list[str]:
        return [str(option).strip() for option in task.columns.get("options", ())]


def meaning(answer: str | None, options: Sequence[str]) -> str | None:
    """The option that an answer is, or names by its letter ("B", "b." or "B. text"); the answer itself if it is neither."""
    if answer is None or answer in options:
        return answer
    letter, _, rest = answer.partition(".")
    place = ascii_uppercase.find(letter.strip(" ()").upper() or "?")
    named = len(letter.strip(" ()")) == 1 and 0 <= place < len(options)
    return options[place] if named and rest.strip() in ("", options[place]) else answer
