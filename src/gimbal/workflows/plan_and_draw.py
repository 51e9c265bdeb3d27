"""Two roles of two kinds: one writes which class to draw, and another draws it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.policies.denoiser import LABEL, Denoiser
from gimbal.policies.paths import NO_LABEL
from gimbal.records import Episode
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Steps
from gimbal.workflows.plan_and_execute import PLANNER, check_plan, handed

PAINTER = "painter"
NAMED = "named"  # in a picture's scores: whether the words named its class


@dataclass(frozen=True, kw_only=True)
class PlanAndDraw(AbstractWorkflow):
    """The role "planner" answers the prompt in words, and the role "painter" draws the class that its words name (the episode of
    UniGRPO, arXiv:2603.23500: reasoning, then an image).

    x ~ pi_painter(. | c(m)),  m ~ pi_planner(. | prompt);  both rows are one episode and earn what the picture earns.

    c(m) is what the first group of the pattern ``plan`` finds in m, at the last place: a class below ``classes``. Without one the
    painter draws no class in particular; ``reward/named/mean`` is the share of words that named one. The row of the picture carries
    the planner's words as its text, for rewards of texts.

    - a planner that always writes the same class: an unconditional task for the painter.
    - no planner: SingleTurn of the painter.

    Left out of the published episode: a prompt for the image of more than a class, and editing.

    Confidence: verified (text, then image, one outcome); ours: the pattern.
    """

    plan: str = r"<answer>(\d+)</answer>"
    classes: int = 10

    def __post_init__(self) -> None:
        check_plan("PlanAndDraw", self.plan, r"(\d+), of the class")
        if self.classes < 1:
            raise ValueError(f"PlanAndDraw.classes is {self.classes}; it must be at least 1")

    @property
    def players(self) -> frozenset[str]:
        return frozenset({PLANNER, PAINTER})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        learns = whole.run.learns
        kind = learns.kinds.get(learns.owners.get(PAINTER, ""))
        if kind is None or not isinstance(kind.policy, Denoiser):
            yield Refusal(
                "PlanAndDraw has its painter draw by a model of another kind than the planner's, and this run gives it none: "
                "separate.painter='SeparateWeights(kind=OtherKind(policy=Denoiser(), engine=Denoising(), sampling=PathSampling(), "
                "objective=ClippedStep()))'"
            )
        elif why := kind.policy.unknown(range(self.classes)):
            yield Refusal(f"PlanAndDraw.classes={self.classes} may ask for {why}: lower it")
        elif kind.policy.only_by_class:
            yield Refusal(
                f"PlanAndDraw draws no class in particular where the plan names none, and {kind.policy.model} samples only with one: "
                "use another model"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        begin = attempt.begin()
        if not isinstance(begin, Draw):
            raise ValueError("PlanAndDraw cannot begin in the middle of a row: leave it out of workflows that fork")
        planned = yield replace(begin, role=PLANNER)
        last = handed(self.plan, planned.text) or ""
        named = int(last) if last.isdecimal() and int(last) < self.classes else NO_LABEL
        task = replace(attempt.task, columns={**attempt.task.columns, LABEL: named})
        drawn = yield Draw(task=task, sample=attempt.sample, sampling=None, role=PAINTER)
        told = drawn.scores | {NAMED: float(named != NO_LABEL)}
        return Episode(rows=(planned, replace(drawn, task=attempt.task, text=planned.text, scores=told)))
