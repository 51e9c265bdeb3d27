"""Real pictures, written in scales: what a next-scale policy learns from before it draws."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.dataflow.real_samples import RealSamples
from gimbal.objectives.base import AbstractCorrection
from gimbal.ops import philox
from gimbal.ops.scales import spelled
from gimbal.policies.commits import MaskedSampling
from gimbal.policies.paths import NO_LABEL
from gimbal.records import Episode
from gimbal.workflows.base import AbstractWorkflow, Attempt, Steps, Write


@dataclass(frozen=True, kw_only=True)
class InScales(AbstractWorkflow):
    """Writes a real picture of the class of its task, at each of ``sides`` from coarse to fine, as the policy would have drawn it.

    Each scale holds the picture itself and not what is missing of it (FlexVAR, arXiv:2502.20313): the means over blocks of pixels, as
    letters (ops.scales). With ``Likelihood`` as objective this is teacher forcing: every scale is learned after true coarser ones.
    Nothing is sampled, so ``behavior`` is 0, and engine=Offline() is enough. sampling.blocks are the squares of ``sides``.
    """

    real: RealSamples = field(default_factory=RealSamples)
    sides: tuple[int, ...] = (2, 4, 8)

    @property
    def requires(self) -> frozenset[str]:
        return frozenset()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractCorrection):
            yield Refusal("real pictures were not sampled, so no ratio to a sampler means anything: correction=None")
        cells = tuple(side * side for side in self.sides)
        sampling = whole.run.sampling
        if not isinstance(sampling, MaskedSampling) or (sampling.blocks, sampling.max_length) != (cells, sum(cells)):
            yield Refusal(
                f"InScales writes pictures with sides of {list(self.sides)}, which a policy draws with policy=MaskedLM("
                f"model=gimbal-scales) sampling='MaskedSampling(max_length={sum(cells)},threshold=0,blocks={list(cells)})'"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        generator = philox("scales", attempt.seed, attempt.task.id, attempt.sample)
        label = torch.tensor([attempt.task.columns.get("label", NO_LABEL)])
        sample_KD, _ = self.real.kept()
        picture_D = self.real.drawn(label, tuple(sample_KD.shape[1:]), generator)[0].flatten()
        row = yield Write(text=spelled(picture_D, self.sides), end=False)
        return Episode.of(row)
