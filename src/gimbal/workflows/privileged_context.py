"""Some attempts of a group read what the others are to know: all train as if none had read it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.policies.token import Tokens
from gimbal.records import Episode, Task
from gimbal.rewards.asking import PLACE, asked_by, fill
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Encode, Steps

AWARE, UNAWARE = "aware", "unaware"


@dataclass(frozen=True, kw_only=True)
class PrivilegedContext(AbstractWorkflow):
    """The role "aware" answers behind a context p that is left out in training; the role "unaware" answers the prompt x itself
    (PolicyRollout of TriMPI, arXiv:2510.09474).

    y ~ pi(. | p, x)  or  y ~ pi(. | x);    both train by log pi(y | x), in one group with one baseline

    In a group the share ``aware`` of the attempts read ``template``, with {prompt} and the task's columns filled in; their rows get the
    tokens of the prompt x in its place. ``behavior`` stays what they were sampled with, log pi(y | p, x). So a run without a
    ``correction`` takes them as drawn from pi(. | x) (biased: as we read the publication), and
    ``correction=TruncatedWeight()`` weighs each token by pi(y | x) / pi(y | p, x), at most its cap: exact below it, and next to
    nothing for what the policy does not say by itself.

    - ``aware`` = 0, or a template of {prompt} alone: SingleTurn.

    Published: before this stage, pretraining on the text of p and SFT without it. Confidence: partial (mixed groups are from the paper;
    the weight is ours).
    """

    template: str = "{context}\n{prompt}"
    aware: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.aware <= 1:
            raise ValueError(f"PrivilegedContext.aware is {self.aware}; it is the share of a group's attempts, 0 to 1")
        if not PLACE.search(self.template):
            raise ValueError(
                f"PrivilegedContext.template is {self.template!r:.60}, which reads nothing of a task: write what it reads in braces, "
                "as {context} {prompt}"
            )

    @property
    def players(self) -> frozenset[str]:
        return frozenset({AWARE, UNAWARE})

    def accepts(self, task: Task) -> None:
        fill(self.template, task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        held_out, loop = whole.run.held_out, whole.run.learns.stability
        if held_out is not None and held_out.workflow is None:
            yield Refusal(
                "the evaluation would read the context that PrivilegedContext leaves out: held_out.workflow=SingleTurn()"
            )
        if self.aware and loop is not None and loop.region.discrepancy < math.inf:
            yield Advice(
                "what aware attempts say is far from the policy without their context by design, which slows the closed loop to its "
                "least rate: stability.region.discrepancy=inf"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        first = attempt.begin()
        if not isinstance(first, Draw) or not self._reads(attempt.sample):
            return Episode.of((yield replace(first, role=UNAWARE) if isinstance(first, Draw) else first))
        own = yield Encode(task=attempt.task)
        if own.refused:
            raise ValueError(own.refused)
        row = yield replace(first, task=asked_by(self.template, attempt.task), role=AWARE)
        tokens = row.decisions
        assert isinstance(tokens, Tokens), type(tokens)
        said = tokens.ids_NL[0, int(tokens.prompt_N[0]) : int(tokens.length_N[0])].tolist()
        decisions = Tokens.row(list(own.ids), said, tokens.pictures_N[0])
        return Episode.of(replace(row, task=attempt.task, decisions=decisions))

    def _reads(self, sample: int) -> bool:
        """Spread over the samples of a group; the first one reads where any does."""
        return math.ceil(self.aware * (sample + 1)) > math.ceil(self.aware * sample)
