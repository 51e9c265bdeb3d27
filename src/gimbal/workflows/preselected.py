"""Groups of many candidates, drawn cheaply, of which only the best and the worst are drawn in full and trained on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.policies.paths import ODE, PathSampling
from gimbal.records import Drop, Episode, Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Steps
from gimbal.workflows.over_rows import evaluated_otherwise, goes_by


@dataclass(frozen=True, kw_only=True)
class Preselected(AbstractWorkflow):
    """Draws each sample of a group in ``draft`` denoising steps, and the ``keep`` / 2 best and as many of the worst again, from the
    same noise, in all steps (Sol-RL, arXiv:2604.06916).

    Drafts are ranked by ``reward``; among equals the lower sample counts as worse. The others are counted as drops/rollouts/unselected,
    and the steps of all drafts as generated. A group with fewer than ``keep`` drafts that have a reward is dropped whole.

    Log-probabilities: a kept sample is drawn by the policy's ODE, but chosen by its reward, so the kept are no sample of the policy:
    their mean is near the group's middle and their spread is larger. Updates of the forward process read no ratios.
    Evaluations must not use this workflow.

    - ``keep`` = the samples of a group or more: SingleTurn, bit for bit.
    - ``draft`` = the sampling's own steps: best and worst of the samples themselves; nothing is drawn twice.

    Published: 96 candidates, ``keep`` 24, drafts of 6 steps of 10 by a network in FP4. Ours: drafts in the sampler's own precision, so
    they save steps alone.

    Confidence: verified.
    """

    draft: int = 6
    keep: int = 24
    reward: AbstractReward

    def __post_init__(self) -> None:
        if self.draft < 1 or self.keep < 2 or self.keep % 2:
            raise ValueError(
                f"Preselected has draft {self.draft} (1 step or more) and keep {self.keep} (an even number from 2: half are the best)"
            )

    @property
    def whole(self) -> bool:
        return True

    def accepts(self, task: Any) -> None:
        self.reward.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise("Preselected chooses samples by their reward", whole)
        yield from goes_by(self.reward, "Preselected", whole)
        sampling = whole.run.sampling
        if not isinstance(sampling, PathSampling) or sampling.sampler != ODE:
            yield Refusal(
                "Preselected draws a sample again from its first noise, which fixes it only on the ODE of a denoising policy: "
                "sampling.sampler='ode'"
            )
        elif self.draft > sampling.max_length:
            yield Refusal(
                f"Preselected.draft is {self.draft}, more steps than a sample has: at most sampling.max_length={sampling.max_length}"
            )
        if self.keep >= whole.run.num_generations:
            yield Refusal(
                f"Preselected keeps {self.keep} of a group of {whole.run.num_generations}, so it selects nothing: set "
                "workflow.keep below num_generations, or workflow='SingleTurn()'"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        full = attempt.sampling
        if self.keep >= len(attempt.samples):
            rows = yield [attempt.of(sample).begin() for sample in attempt.samples]
            return [Episode.of(row) for row in rows]
        short = replace(full, max_length=min(self.draft, full.max_length))
        drafts = yield [Draw(sample=sample, sampling=short) for sample in attempt.samples]
        chosen = self._chosen(attempt, drafts)
        outcomes: dict[int, Episode | Drop] = {row.sample: Drop("unselected", drawn=row.drawn) for row in drafts}
        kept = [row for row in drafts if row.sample in chosen]
        again = kept
        if short != full:
            again = yield [Draw(sample=row.sample, sampling=full) for row in kept]
        for before, row in zip(kept, again, strict=True):
            outcomes[row.sample] = Episode(rows=(row,), spent=before.drawn if short != full else 0)
        return [outcomes[sample] for sample in attempt.samples]

    def _chosen(self, attempt: Attempt, drafts: Sequence[Rollout]) -> frozenset[int]:
        """The samples at both ends; none where there are too few to choose from."""
        values = self.reward(Group.of(attempt.group, attempt.task, drafts))
        ranked = sorted(
            (value, row.sample)
            for value, row in zip(values, drafts, strict=True)
            if value is not None and value == value
        )
        if len(ranked) < self.keep:
            return frozenset()
        half = self.keep // 2
        return frozenset(sample for _, sample in (*ranked[:half], *ranked[-half:]))
