"""Old weights by version, each evaluating the decisions it sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.learning.proximal.base import AbstractAnchor, Evaluate, frozen_copy, weight_bytes
from gimbal.policies.base import AbstractPolicy
from gimbal.records import TrainBatch


class KeptVersions(AbstractAnchor):
    """The live SamplingVersion: the weights of the last ``window`` + 1 versions, in whichever process evaluates them."""

    def __init__(self, window: int, policy: AbstractPolicy) -> None:
        self.window = window
        self.kept: dict[int, AbstractPolicy] = {0: frozen_copy(policy)}

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        version_NS = batch.column("version_NS", self)
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
        self.kept = {v: weights for v, weights in self.kept.items() if v >= version - self.window}

    def nbytes(self) -> int:
        return sum(weight_bytes(policy) for policy in self.kept.values())

    def state_dict(self) -> dict[str, Any]:
        return {"kept": {v: {name: x.clone() for name, x in p.state_dict().items()} for v, p in self.kept.items()}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        any_policy = next(iter(self.kept.values()))
        self.kept = {version: frozen_copy(any_policy) for version in state["kept"]}
        for version, weights in state["kept"].items():
            self.kept[version].load_state_dict(weights)
