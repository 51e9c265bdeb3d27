"""Several policies grow one tree of attempts, each refining what it or another wrote."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from gimbal.advantages.estimators.revision_normalized import BEFORE, OUTCOME
from gimbal.advantages.estimators.tree_shaped import PARENT, TreeShaped
from gimbal.composition import GROWS_TREE, Advice, Composition, Verdict
from gimbal.ops import philox
from gimbal.records import Drop, Episode, Group, Rollout, Task
from gimbal.rewards.asking import asked_by
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Steps
from gimbal.workflows.over_rows import evaluated_otherwise, scores_itself


@dataclass
class _Node:
    """An attempt in the tree (the root: none), and what was found below it."""

    place: int = -1
    text: str = ""
    score: float = 0.0
    children: list[_Node] = field(default_factory=list)
    role: str = ""

    @property
    def scores(self) -> list[float]:
        """Its own, and those of all below it."""
        return [self.score, *(score for child in self.children for score in child.scores)]


@dataclass(frozen=True, kw_only=True)
class SharedTree(AbstractWorkflow):
    """The samples of a group are the nodes of one tree, which the ``explorers`` grow in turn by refining each other's answers (MARS2,
    arXiv:2604.14564).

    Each node is drawn by one role: under the root the answer to the prompt, elsewhere the answer to ``refine``, which has {prompt}, the
    parent's {answer} and its {score}, and the task's columns. Who draws, and below which node, is sampled as in AB-MCTS: from the root
    down, every explorer (a new child of its) and every child (going on there) draws theta ~ Beta(1 + sum s, 1 + sum (1 - s)), over the
    scores of that explorer's children here, or of that child and all below it; the largest theta is followed until it is an explorer's.
    ``reward`` scores each node as it comes, in [0, 1], and ``advantage=TreeShaped()`` compares it with its parent, its siblings and the
    tree.

    By default all explorers share the policy; ``separate={"second": SeparateWeights()}`` of the run trains two models.

    - one explorer and ``deepest`` = 1: independent samples, GRPO.
    - ``deepest`` = 1: independent samples of several policies, each drawn as often as it succeeds.

    A node without a score is dropped and has no children: ``unscored``. Nodes of a tree wait for each other, so a group takes as long
    as all its rows in a row.

    Confidence: verified (tree, shaping, a model's own rows); partial: the posteriors. Left out: the bound on overlong answers, and
    models that step at different times. The published loss is GSPO's with a truncated weight: objective and correction of the run.
    """

    biased: ClassVar[str] = "SharedTree refines what was scored"

    explorers: tuple[str, ...] = ("first", "second")
    reward: AbstractReward = ExactAnswer()
    refine: str = "{prompt}\n\nAn answer was:\n{answer}\nIts score is {score}. Write a better one."
    deepest: int = 8

    def __post_init__(self) -> None:
        if not self.explorers or len(set(self.explorers)) < len(self.explorers) or not all(self.explorers):
            raise ValueError(f"SharedTree.explorers is {self.explorers}; name one or more roles, each once")
        if self.deepest < 1:
            raise ValueError(
                f"SharedTree.deepest is {self.deepest}; it counts nodes from the root to a leaf, 1 or more"
            )
        if self.deepest > 1 and "{answer}" not in self.refine:
            raise ValueError(f"SharedTree.refine is {self.refine!r}; it must have {{answer}}, or nothing is refined")

    @property
    def whole(self) -> bool:
        return True

    @property
    def players(self) -> frozenset[str]:
        return frozenset(self.explorers)

    def effects(self) -> frozenset[str]:
        return super().effects() | {GROWS_TREE}

    def accepts(self, task: Task) -> None:
        self.reward.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from scores_itself("SharedTree", whole)
        yield from evaluated_otherwise(self.biased, whole)
        if not whole.has(TreeShaped):
            yield Advice("nodes are compared without their parents: advantage='TreeShaped()' counts what they improve")

    def __call__(self, attempt: Attempt) -> Steps:
        root = _Node()
        outcomes: list[Episode | Drop] = []
        for place, sample in enumerate(attempt.samples):
            above, role = self._chosen(root, attempt, place)
            told = {"answer": above.text, "score": f"{above.score:.2g}"}
            task = attempt.task if above is root else asked_by(self.refine, attempt.task, told)
            row: Rollout = yield Draw(task=task, sample=sample, sampling=attempt.sampling, role=role)
            (score,) = self.reward(Group.of(attempt.group, attempt.task, [replace(row, task=attempt.task)]))
            if score is None or not math.isfinite(score):
                outcomes.append(Drop("unscored", drawn=row.drawn))
                continue
            answer = self.reward.answer(row.text)
            text = row.text.strip() if answer is None else answer
            above.children.append(_Node(place=place, text=text, score=float(score), role=role))
            scores = {OUTCOME: float(score), PARENT: float(above.place), BEFORE: above.score}
            outcomes.append(Episode.of(row).scored(float(score), scores))
        return outcomes

    def _chosen(self, root: _Node, attempt: Attempt, place: int) -> tuple[_Node, str]:
        """Below which node the next one is drawn, and by whom."""
        rng, node = philox("shared tree", attempt.seed, attempt.task.id, attempt.group, place), root
        for depth in range(1, self.deepest + 1):
            own = [[c.score for c in node.children if c.role == role] for role in self.explorers]
            theta = [_drawn(scores, rng) for scores in own]
            best = int(np.argmax(theta))
            below = [_drawn(child.scores, rng) for child in node.children]
            if depth == self.deepest or not below or max(below) <= theta[best]:
                return node, self.explorers[best]
            node = node.children[int(np.argmax(below))]
        raise AssertionError("the deepest node is drawn by an explorer")


def _drawn(scores: Sequence[float], rng: np.random.Generator) -> float:
    """From what is believed of the mean of these scores."""
    within = [min(1.0, max(0.0, score)) for score in scores]
    return float(rng.beta(1 + sum(within), 1 + len(within) - sum(within)))
