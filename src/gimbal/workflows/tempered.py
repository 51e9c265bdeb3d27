"""Samples some groups at another temperature, hotter or colder depending on the policy's entropy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.composition import ABSORBS_DISCREPANCY, TEMPERS, Composition, Refusal, Verdict
from gimbal.engines.base import RECORD
from gimbal.objectives.base import AbstractCorrection
from gimbal.records import Rollout, Task
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps
from gimbal.workflows.single import SingleTurn

# Entropy under the weights before the present ones (None: not known yet), and the sum and number of those since.
Measured = tuple[float | None, float, int]


@dataclass(frozen=True, kw_only=True)
class Tempered(AbstractWorkflow):
    """Samples one group in ``every`` at ``high`` times the temperature while entropy is at most ``target``, else at ``low`` times
    (AEPO).

    AEPO, arXiv:2510.08141: it feeds TemperedImitation, which makes the policy imitate what worked at that temperature. Entropy is the
    mean over the decisions of the other groups finished since the last sync but one; until it is known, the temperature is unchanged.
    The engine must record entropy. ``inside`` drives each attempt.

    - ``target`` = -inf or inf: always colder, or always hotter.
    - ``high`` = ``low`` = 1: ``inside`` unchanged.

    Published: ``high`` 1.2, ``low`` 0.8, ``target`` 0.25 to 0.75, a second batch of a quarter of the prompts of which few rollouts are
    kept; ours: ``every``.
    """

    target: float = 0.5
    high: float = 1.2
    low: float = 0.8
    every: int = 16
    inside: AbstractWorkflow = SingleTurn()

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError(
                f"Tempered multiplies the temperature by {self.high} to raise entropy and by {self.low} to lower it: set high to at "
                "least 1, and low at most 1 and above 0"
            )
        if self.every < 2:
            raise ValueError(f"Tempered.every is {self.every}; it leaves groups to measure only from 2 on")

    @property
    def whole(self) -> bool:
        return self.inside.whole

    @property
    def requires(self) -> frozenset[str]:
        return self.inside.requires | {RECORD}

    @property
    def players(self) -> frozenset[str]:
        return self.inside.players

    def accepts(self, task: Task) -> None:
        self.inside.accepts(task)

    def effects(self) -> frozenset[str]:
        return super().effects() | {TEMPERS}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractCorrection) or whole.doing(ABSORBS_DISCREPANCY):
            yield Refusal(
                "Tempered samples some groups at another temperature on purpose, and a sampler correction would undo it: "
                "correction=None and anchor=Recompute()"
            )
        if not whole.has(TemperedImitation):
            yield Refusal(
                "Tempered samples some groups at another temperature, which must not train as if on-policy: "
                "add TemperedImitation() to shaping"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        entropy = attempt.memory[0]
        if self._chosen(attempt) and entropy is not None:
            factor = self.high if entropy <= self.target else self.low
            sampling = replace(attempt.sampling, temperature=factor * attempt.sampling.temperature)
            attempt = replace(attempt, sampling=sampling)
        return (yield from self.inside(attempt))

    def begin(self) -> Measured:
        return None, 0.0, 0

    def remember(self, memory: Measured, attempt: Attempt, rows: Sequence[Rollout]) -> Measured:
        if self._chosen(attempt):
            return memory
        entropy, total, count = memory
        for row in rows:
            if row.entropy_S is None:
                raise ValueError(
                    "Tempered needs the entropy that its engine records, but it records none: set engine.entropy=true"
                )
            entropy_S = row.entropy_S[row.mask_S]
            total, count = total + float(entropy_S.double().sum()), count + len(entropy_S)
        return entropy, total, count

    def renewed(self, memory: Measured) -> Measured:
        entropy, total, count = memory
        return total / count if count else entropy, 0.0, 0

    def _chosen(self, attempt: Attempt) -> bool:
        return attempt.group % self.every == self.every - 1
