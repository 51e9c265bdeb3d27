"""Shows solved examples of similar tasks where a task has only failed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gimbal.composition import GROWS, Composition, Refusal, Verdict
from gimbal.config.own import started
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, Begun, Plan, Progress
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.success import outcomes
from gimbal.environments.exemplified import EXAMPLES, exemplified
from gimbal.policies.token import Sampling
from gimbal.records import Group, Task

GRAMS = 3  # characters of a feature
Held = tuple[int, Task, str]  # the group that it is from, its task, and an answer that was right


@dataclass(frozen=True, kw_only=True)
class Seeded(AbstractBudgetSpec):
    """Draws the further rollouts of a task that has only failed from a prompt that shows solved examples of similar tasks (the
    in-context seeding of XRPO, arXiv:2510.06672).

    ``inside`` decides how many rollouts. Where all of a group's outcomes so far are below ``threshold``, those that it adds see the
    ``examples`` most similar tasks that are held, each with a right answer of the policy's own, the most similar one last. Similarity
    is the cosine of the counts of three-character strings in the prompts. Held is the first right answer of each task, in the newest
    ``capacity`` groups that had one; a task never sees its own.

    Log-probabilities: seeded rollouts are sampled and trained with the examples in their prompt. ``behavior``, proximal and trained
    log-probabilities are all of that prompt, so the rollouts are on-policy and need no correction. The gradient is that of
    the seeded prompt; that it helps the plain one is what the method assumes. A group's mean and deviation cover its plain failures and
    its seeded rollouts together. Pass rates and curricula count seeded rollouts too; evaluations never see an example.

    - ``inside`` that adds nothing, or a success among the first rollouts: as ``inside``.
    - nothing held, or of the task itself only: as ``inside``.

    Examples of more than ``longest`` characters in all are passed over, so that prompts fit the model. A task given as ``prompt_ids``
    keeps its prompt.

    Examples come into use with the next step, so that the order in which groups arrive does not matter.

    Published: seeding of groups without a success by similar solved problems. Ours: the measure of similarity, one example, the store.

    Confidence: partial; that seeded rollouts train in the seeded prompt is from reports of the paper.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    inside: AbstractBudgetSpec = IntervalShared()
    examples: int = 1
    capacity: int = 256
    longest: int = 4000
    threshold: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        if self.examples < 1 or self.capacity < 1:
            raise ValueError(
                f"Seeded shows {self.examples} examples and holds {self.capacity} tasks; both must be at least 1"
            )
        if self.longest < 1 or not 0 < self.threshold <= 1:
            raise ValueError(
                f"Seeded has longest {self.longest} (characters, 1 or more) and threshold {self.threshold} (above 0, up to 1: outcomes "
                "are right from there on)"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({GROWS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not isinstance(whole.run.sampling, Sampling):
            yield Refusal("Seeded writes examples into prompts, and only tasks for text have those: budget='Fixed()'")
        if isinstance(self.inside, Seeded):
            yield Refusal(
                "Seeded inside another Seeded does nothing, because the outer one writes the prompts: "
                "budget.inside='IntervalShared()'"
            )
        if GROWS not in self.inside.effects():
            yield Refusal(
                f"Seeded changes the prompt of further rollouts, and {type(self.inside).__name__} draws none: "
                "budget.inside='IntervalShared()', or inside='UntilMixed()'"
            )

    def accepts(self, task: Task) -> None:
        self.inside.accepts(task)

    def start(self, rollouts: int, max_length: int) -> SeededBudget:
        return SeededBudget(self, started(self.inside, AbstractBudget, rollouts, max_length))


class SeededBudget(AbstractBudget):
    """The live half of ``Seeded``."""

    def __init__(self, spec: Seeded, inside: AbstractBudget) -> None:
        self.spec, self.inside = spec, inside
        self.held: dict[str, Held] = {}  # by task, in use
        self.new: dict[str, Held] = {}  # since the step began
        # Groups that were seeded, over the whole run, and those of them with a success since.
        self.seeded = self.solved = 0

    @property
    def rounds(self) -> bool:  # type: ignore[override]
        return self.inside.rounds

    def plan(self, tasks: Sequence[Task]) -> Sequence[Plan]:
        return self.inside.plan(tasks)

    def more(self, begun: Sequence[Begun]) -> Sequence[int]:
        return self.inside.more(begun)

    def asks(self, group: Group) -> Task:
        examples = [] if self._right(group) or "prompt_ids" in group.task.columns else self._similar(group.task)
        return exemplified(group.task, examples) if examples else self.inside.asks(group)

    def _similar(self, task: Task) -> list[tuple[Task, str]]:
        """The examples that it sees, the most similar one last."""
        own, found, left = _features(task), list[tuple[Task, str]](), self.spec.longest
        others = [held for name, held in self.held.items() if name != task.id]
        for _, other, text in sorted(others, key=lambda held: (-_cosine(_features(held[1]), own), held[1].id)):
            if len(found) < self.spec.examples and (length := len(other.asked) + len(text)) <= left:
                found, left = [(other, text), *found], left - length
        return found

    def observe(self, group: Group) -> None:
        self.inside.observe(group)
        right = self._right(group)
        shown = any(EXAMPLES in row.task.columns for row in group.rollouts)
        self.seeded += shown
        self.solved += shown and bool(right)
        if right and group.index >= self.new.get(group.task.id, (-1,))[0]:
            kept = {name: group.task.columns[name] for name in ("messages",) if name in group.task.columns}
            text = group.episodes[right[0]].text
            self.new[group.task.id] = group.index, replace(group.task, columns=kept), text

    def step(self, progress: Progress) -> None:
        self.inside.step(progress)
        # By the order of dispatch, which no slow group changes.
        newest = sorted((self.held | self.new).values(), key=lambda held: held[0])[-self.spec.capacity :]
        self.held, self.new = {held[1].id: held for held in newest}, {}

    def _right(self, group: Group) -> list[int]:
        """The places of its episodes that are right."""
        return [place for place, one in enumerate(outcomes(group, self.spec.name)) if one >= self.spec.threshold]

    def metrics(self) -> dict[str, float]:
        """``held``: examples in use. ``seeded``: groups that saw some, over the whole run; ``solved``: those of them with a success."""
        own = {"held": len(self.held), "seeded": self.seeded, "solved": self.solved}
        return {**self.inside.metrics(), **{f"Seeded/{name}": float(count) for name, count in own.items()}}

    def state_dict(self) -> dict[str, Any]:
        own = {"held": dict(self.held), "new": dict(self.new), "counts": [self.seeded, self.solved]}
        return {**own, "inside": self.inside.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.held, self.new = dict(state["held"]), dict(state["new"])
        self.seeded, self.solved = state["counts"]
        self.inside.load_state_dict(state["inside"])


def _features(task: Task) -> Counter[str]:
    text = task.asked
    return Counter(text[at : at + GRAMS] for at in range(max(1, len(text) - GRAMS + 1)))


def _cosine(one: Counter[str], other: Counter[str]) -> float:
    length = math.sqrt(sum(n * n for n in one.values()) * sum(n * n for n in other.values()))
    return sum(count * other[feature] for feature, count in one.items()) / length if length else 0.0
