"""Samples tasks by a kernel of their pass rate that peaks at intermediate difficulty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gimbal.dataflow.base import AbstractCurriculumSpec
from gimbal.dataflow.curricula.choosing import AbstractSuccessChooser, gumbel
from gimbal.dataflow.success import AbstractSuccessTracking
from gimbal.environments.base import AbstractTasks


@dataclass(frozen=True, kw_only=True)
class Frontier(AbstractSuccessTracking, AbstractCurriculumSpec):
    """Samples tasks with weights w = p^alpha (1 - p)^beta, the Beta kernel of PACED (arXiv:2603.11178).

    p is the mean of a Beta model of the task, a <- prior + fresh (a - prior) + sum r on a visit with outcomes r in [0, 1], and
    a <- prior + fade (a - prior) in each step, b alike. The B tasks of a step are sampled without replacement. w has its peak at
    alpha / (alpha + beta).

    - ``alpha`` = ``beta`` = 0: uniform.
    - ``alpha`` = ``beta`` = 1: by the variance of the outcomes, p (1 - p).
    - ``beta`` = 0: easier tasks more often.

    Candidates are all tasks, or a ``pool`` of them resampled at each step. Tasks must repeat for this to work: tasks.size=256.

    Published: ``alpha`` = ``beta`` = 1, as weights on distillation losses.

    Confidence: partial; the kernel is the paper's; ours: tasks are sampled in that proportion where PACED weights their losses, which
    is the same in expectation, and the model of p instead of a profile every few hundred steps. p is of the run's rewards, whether
    they train or are only measured (`paced_opd`).
    """

    alpha: float = 1.0
    beta: float = 1.0
    pool: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.alpha, self.beta) < 0:
            raise ValueError(f"Frontier has alpha {self.alpha} and beta {self.beta}; both are exponents of 0 or above")

    def start(self, tasks: AbstractTasks, seed: int) -> FrontierCurriculum:
        return FrontierCurriculum(self, tasks, seed)


class FrontierCurriculum(AbstractSuccessChooser):
    """The live half of ``Frontier``."""

    def __init__(self, spec: Frontier, tasks: AbstractTasks, seed: int) -> None:
        super().__init__(type(spec).__name__, tasks, seed, pool=spec.pool, model=spec.model(), reward=spec.name)
        self.spec = spec

    def score(self, ids: Sequence[str | None], noise: np.random.Generator) -> Float[np.ndarray, " P"]:
        chance_P = self.model.chance(ids)
        return gumbel(noise, chance_P**self.spec.alpha * (1 - chance_P) ** self.spec.beta)
