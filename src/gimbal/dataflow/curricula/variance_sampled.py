"""Selects the tasks whose outcomes are believed to vary most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gimbal.dataflow.base import AbstractCurriculumSpec
from gimbal.dataflow.curricula.choosing import AbstractSuccessChooser
from gimbal.dataflow.success import AbstractSuccessTracking
from gimbal.environments.base import AbstractTasks


@dataclass(frozen=True, kw_only=True)
class VarianceSampled(AbstractSuccessTracking, AbstractCurriculumSpec):
    """Tasks with the largest p (1 - p), p being sampled from a posterior updated by the training rollouts (VADE,
    arXiv:2511.18902).

    p ~ Beta(a, b) of each candidate, sampled once per step (Thompson sampling); of all tasks, or of a ``pool`` resampled at each step,
    those with the largest p (1 - p) come next. After each step all evidence fades, a <- prior + fade (a - prior); on a visit with
    outcomes r in [0, 1], a <- prior + fresh (a - prior) + sum r, and b alike. It uses the reward ``name``, or the whole score if it is
    empty, clipped to [0, 1].

    - ``fade`` = ``fresh`` = 1: a posterior that forgets nothing, which lags behind a changing policy.
    - ``fresh`` = 0: only the last visit.

    A solved task fades back to the prior and is used again; the smaller ``fade``, the sooner. Tasks must repeat for this to work:
    tasks.size=256.

    Confidence: partial; Beta, Thompson sampling, the score and two decays are the paper's; ours: where they act, and the defaults.
    """

    pool: int = 0

    def start(self, tasks: AbstractTasks, seed: int) -> VarianceSampledCurriculum:
        name = type(self).__name__
        return VarianceSampledCurriculum(name, tasks, seed, pool=self.pool, model=self.model(), reward=self.name)


class VarianceSampledCurriculum(AbstractSuccessChooser):
    """The live half of ``VarianceSampled``."""

    def score(self, ids: Sequence[str | None], noise: np.random.Generator) -> Float[np.ndarray, " P"]:
        counts_P2 = self.model.counts(ids)
        chance_P = noise.beta(counts_P2[:, 0], counts_P2[:, 1])
        return chance_P * (1 - chance_P)
