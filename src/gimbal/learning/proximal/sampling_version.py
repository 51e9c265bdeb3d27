"""The weights that sampled each decision, as the trainer evaluates them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.dataflow.staleness import Reweight
from gimbal.learning.proximal.base import AbstractAnchor, Evaluate
from gimbal.learning.proximal.kept_versions import KeptVersions
from gimbal.learning.proximal.old_policy import OldPolicy
from gimbal.policies.base import AbstractPolicy
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class SamplingVersion(AbstractAnchor):
    """proximal = log pi_v(decision), v the version that sampled it: the exact old policy, from stored weights (arXiv:2605.12070).

    Then exp(proximal - behavior) is only discrepancy, and exp(logprob - proximal) all of the staleness, at any age. If the engine
    rebuilds its cache with new weights (``cache`` "recompute"), this holds even where versions change within a rollout; with "keep"
    such a decision also depends on keys and values of older versions, and the gap counts as discrepancy. Costs window + 1 copies of the
    weights, and a forward pass per version over the rows it sampled from.

    - all data of the present version: Recompute.
    - an engine without discrepancy: Behavior, except that a correction may be combined with it.

    ``window`` is the oldest age kept; set it to the run's max_staleness. An older decision is an error, never a guess.
    ``apart`` keeps and evaluates old versions in their own process, in ``threads`` threads, on the learner's device: groups waiting for
    their batch are evaluated meanwhile, and the learner waits only for the rest.

    Confidence: verified.
    """

    at_sampling: ClassVar[bool] = True

    window: int = 4
    apart: bool = False
    threads: int = 1

    def __post_init__(self) -> None:
        if self.window < 0 or self.threads < 1:
            raise ValueError(
                f"SamplingVersion.window is {self.window}, which counts versions from 0, and threads {self.threads}, from 1"
            )

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        raise TypeError("SamplingVersion keeps weights: call start(policy) and use what it returns")

    def start(self, policy: AbstractPolicy) -> KeptVersions | OldPolicy:
        return OldPolicy(self.window, self.threads, policy) if self.apart else KeptVersions(self.window, policy)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.window < whole.run.max_staleness:
            yield Refusal(
                "SamplingVersion keeps fewer versions than max_staleness requires: set anchor.window to max_staleness"
            )
        if whole.has(Reweight):
            yield Refusal(
                "SamplingVersion keeps a fixed number of versions, but Reweight allows decisions of any age: use staleness=Pace()"
            )
