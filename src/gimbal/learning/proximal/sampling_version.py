"""The weights that drew each decision, as the trainer evaluates them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.dataflow.staleness import Reweight
from gimbal.learning.proximal.base import AbstractAnchor, Evaluate, frozen_copy, weight_bytes
from gimbal.learning.proximal.old_policy import OldPolicy
from gimbal.policies.base import AbstractPolicy
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class SamplingVersion(AbstractAnchor):
    """proximal = log pi_v(decision), v the version that drew it: the old policy itself, by keeping old weights (arXiv:2605.12070).

    Then exp(proximal - behavior) is discrepancy and nothing else, and exp(logprob - proximal) all of the staleness, whatever its age
    and, if the engine begins its cache anew with new weights (``cache`` "recompute"), even where versions change within a rollout;
    with "keep" such a decision was drawn from keys and values of older versions too, and the gap counts as discrepancy. Costs
    window + 1 copies of the weights, and a forward pass for each version over the rows that it drew from.

    - all data of the present version: Recompute.
    - an engine without discrepancy: Behavior, but that a correction may stand beside it.

    ``window`` is the oldest age that is kept; let it be the run's max_staleness. An older decision is an error, never a guess.
    ``apart`` keeps and evaluates old versions in a process of their own, in ``threads`` threads, on the learner's device: groups that
    wait for their batch are evaluated meanwhile, and the learner waits for what is left.

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

    def start(self, policy: AbstractPolicy) -> LiveSamplingVersion | OldPolicy:
        return OldPolicy(self, policy) if self.apart else LiveSamplingVersion(self, policy)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.window < whole.run.max_staleness:
            yield Refusal(
                "SamplingVersion keeps fewer versions than decisions may be old: set anchor.window to max_staleness"
            )
        if whole.has(Reweight):
            yield Refusal(
                "SamplingVersion keeps a number of versions, and Reweight lets decisions be older than any number: staleness=Pace()"
            )


class LiveSamplingVersion(AbstractAnchor):
    """The kept weights, by version."""

    def __init__(self, spec: SamplingVersion, policy: AbstractPolicy) -> None:
        self.spec = spec
        self.kept: dict[int, AbstractPolicy] = {0: frozen_copy(policy)}

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        version_NS = batch.column("version_NS", self.spec)
        result_NS = torch.zeros(batch.shape, device=batch.mask_NS.device)
        for version in version_NS[batch.mask_NS].unique().tolist():
            if version not in self.kept:
                raise ValueError(
                    f"a decision is of version {version}, and SamplingVersion keeps {min(self.kept)} to {max(self.kept)}: raise its "
                    "window to the largest staleness"
                )
            here_NS = batch.mask_NS & (version_NS == version)
            rows = here_NS.any(-1).nonzero()[:, 0]
            drawn = batch.select(rows)
            found_NS = torch.nn.functional.pad(
                evaluate(drawn, self.kept[version]), (0, batch.shape[1] - drawn.shape[1])
            )
            result_NS[rows] = found_NS.where(here_NS[rows], result_NS[rows])
        return result_NS

    def publish(self, policy: AbstractPolicy, version: int) -> None:
        self.kept[version] = frozen_copy(policy)
        self.kept = {v: weights for v, weights in self.kept.items() if v >= version - self.spec.window}

    def nbytes(self) -> int:
        return sum(weight_bytes(policy) for policy in self.kept.values())

    def state_dict(self) -> dict[str, Any]:
        return {"kept": {v: {name: x.clone() for name, x in p.state_dict().items()} for v, p in self.kept.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        any_policy = next(iter(self.kept.values()))
        self.kept = {version: frozen_copy(any_policy) for version in state["kept"]}
        for version, weights in state["kept"].items():
            self.kept[version].load_state_dict(weights)
