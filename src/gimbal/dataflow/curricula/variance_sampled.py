"""The tasks whose outcomes vary most, as far as is known."""

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
    """Tasks of the largest p (1 - p), with p drawn from what is believed of each, by the rollouts that training makes anyway (VADE,
    arXiv:2511.18902).

    p ~ Beta(a, b) of each candidate, drawn once a step (Thompson sampling); of all, or of ``pool`` tasks drawn anew in each step, those
    come next whose p (1 - p) is largest. After each step all evidence fades, a <- prior + fade (a - prior); on a visit with outcomes r
    in [0, 1], a <- prior + fresh (a - prior) + sum r, and b alike. Rewards are taken as ``name`` gives them, or in all if it is empty,
    cut to [0, 1].

    - ``fade`` = ``fresh`` = 1: a posterior that forgets nothing, which stays behind a policy that moves.
    - ``fresh`` = 0: the last visit alone.

    A solved task fades back to the prior and is asked again; the smaller ``fade``, the sooner. Tasks have to come again for this to
    mean anything: tasks.size=256.

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
