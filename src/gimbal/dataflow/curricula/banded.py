"""A fixed share of tasks from each band of difficulty."""

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
class Banded(AbstractSuccessTracking, AbstractCurriculumSpec):
    """Tasks in bands of pass rate, each sampled with its share: difficulty pools, as in prime-rl's sampler (2026).

    Band n holds the tasks with ``edges``[n - 1] <= p < ``edges``[n], the hardest first; p is the mean of a Beta model of the task, a <-
    prior + fresh (a - prior) + sum r on a visit with outcomes r in [0, 1], and a <- prior + fade (a - prior) in each step, b alike. A
    task is sampled with weight shares[band] / tasks in the band, without replacement within a step. An empty band leaves its share to
    the others; a band with share 0 is used once nothing else is left.

    - one band: uniform.
    - a task that was never seen has p = 1/2, and counts to that band.

    Candidates are all tasks, or a ``pool`` of them resampled at each step. Evidence fades, so solved tasks drift back to the middle and
    are retested. Tasks must repeat for this to work: tasks.size=256.

    Ours: the edges, the shares and the model of p; prime-rl keeps the mean of the last group.
    """

    edges: tuple[float, ...] = (0.2, 0.8)
    shares: tuple[float, ...] = (0.2, 0.7, 0.1)
    pool: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if sorted(set(self.edges)) != list(self.edges) or not all(0 < edge < 1 for edge in self.edges):
            raise ValueError(f"Banded.edges are {self.edges}; they are rising pass rates between 0 and 1")
        if len(self.shares) != len(self.edges) + 1 or min(self.shares) < 0 or sum(self.shares) <= 0:
            raise ValueError(
                f"Banded.shares are {self.shares}; {len(self.edges)} edges make {len(self.edges) + 1} bands, each with a share of 0 or "
                "above, and not all of them 0"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> BandedCurriculum:
        return BandedCurriculum(self, tasks, seed)


class BandedCurriculum(AbstractSuccessChooser):
    """The live half of ``Banded``."""

    def __init__(self, spec: Banded, tasks: AbstractTasks, seed: int) -> None:
        super().__init__(type(spec).__name__, tasks, seed, pool=spec.pool, model=spec.model(), reward=spec.name)
        self.spec = spec

    def bands(self, ids: Sequence[str | None]) -> np.ndarray:
        return np.searchsorted(self.spec.edges, self.model.chance(ids), side="right")

    def score(self, ids: Sequence[str | None], noise: np.random.Generator) -> Float[np.ndarray, " P"]:
        band_P = self.bands(ids)
        count_B = np.bincount(band_P, minlength=len(self.spec.shares))
        return gumbel(noise, np.array(self.spec.shares)[band_P] / count_B[band_P])

    def metrics(self) -> dict[str, float]:
        """``band_N``: the share of the present candidates that band N holds, from the hardest."""
        band_P = self.bands([self.ids.get(place) for place in self.candidates])
        held = {f"{self.name}/band_{n}": float((band_P == n).mean()) for n in range(len(self.spec.shares))}
        return {**super().metrics(), **held}
