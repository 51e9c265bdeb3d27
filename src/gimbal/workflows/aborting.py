"""Randomly aborts rollouts once they have written a marker, and records the probability that they were kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gimbal.advantages.estimators.inclusion_normalized import InclusionNormalized
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import CONTINUE, DRAW
from gimbal.ops import philox
from gimbal.records import Drop, Episode
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Attempt, Draw, Steps
from gimbal.workflows.over_rows import evaluated_otherwise


@dataclass(frozen=True, kw_only=True)
class Aborting(AbstractWorkflow):
    """Aborts a rollout with probability ``chance`` once it has written ``marker``, and again after every ``every`` further tokens
    (the second of DUET's two controls, arXiv:2605.08441).

    A rollout that passed n of these checkpoints was kept with probability s = (1 - chance)^n, its ``inclusion``. Aborted
    rollouts are counted as drops/rollouts/aborted, and their tokens as generated.

    Log-probabilities: each is the policy's own. The remaining rollouts are not a sample of the policy, since those that are long after
    the marker are aborted more often; sums weighted by 1 / s are right in expectation. advantages.InclusionNormalized weights them so,
    which undoes a part of the bias against long rollouts, the smaller the longer they are (its docstring has figures): its ``most`` =
    10 cuts the weights from 22 checkpoints on, 88 tokens with the defaults of both. Pass rates and selection metrics describe the
    remaining rollouts, unweighted, and evaluations must not use this workflow.

    - ``chance`` = 0, or a marker that is never written: SingleTurn.

    Aborts are sampled by (seed, task, sample), so a repeated or resumed run aborts the same rollouts.

    Confidence: abstract only; published are a marker that arms the aborts and weights that undo their bias; ours: a constant chance, by
    tokens since the marker, where the paper has one token budget set it.
    """

    marker: str = "</think>"
    chance: float = 0.1
    every: int = 4

    def __post_init__(self) -> None:
        if not self.marker or not 0 <= self.chance < 1 or self.every < 1:
            raise ValueError(
                f"Aborting has marker {self.marker!r} (some text), chance {self.chance} (0 or above, below 1) and every {self.every} "
                "(1 token or more)"
            )

    @property
    def requires(self) -> frozenset[str]:
        return frozenset({DRAW, CONTINUE})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise("Aborting drops rollouts at random", whole)
        if not whole.has(InclusionNormalized):
            yield Refusal(
                "Aborting leaves too few long rollouts, and nothing here weighs those that are left: advantage=InclusionNormalized()"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        chances = philox("aborting", attempt.seed, attempt.task.id, attempt.sample)
        row = yield attempt.begin(stop=(self.marker,))
        kept = 1.0
        while row.stop == PAUSED:
            if chances.random() < self.chance:
                return Drop("aborted", drawn=row.drawn)
            kept *= 1 - self.chance
            row = yield Draw(row=row, most=self.every)
        return Episode.of(replace(row, inclusion=kept))
