"""Where the anchor of the trust region comes from."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from gimbal.policies.base import AbstractPolicy
from gimbal.records import TrainBatch


@runtime_checkable
class Evaluate(Protocol):
    """logprob_NS without gradient; of the trainer's present weights, or of another policy's."""

    def __call__(self, batch: TrainBatch, policy: AbstractPolicy | None = None, /) -> Float[Tensor, "N S"]: ...


class AbstractAnchor(ABC):
    """(batch, evaluate) -> proximal_NS, before the first update on the batch.

    A frozen dataclass. One that keeps weights of its own returns a live anchor from ``start``, which the learner then uses: it sees
    every update (``observe``) and is saved with the run. ``absorbs`` names ratios that this choice folds into "update": with behaviour
    as anchor there is no discrepancy left to correct.
    """

    absorbs: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]: ...

    def facts(self, batch: TrainBatch, evaluate: Evaluate) -> Mapping[str, Tensor]:
        """Further columns for ``batch.facts``, where one anchor is not enough."""
        return {}

    def start(self, policy: AbstractPolicy) -> AbstractAnchor:
        """The live anchor of a policy that is about to be trained."""
        return self

    def observe(self, policy: AbstractPolicy, metrics: Mapping[str, float]) -> None:
        """Called after every update, with the metrics of its minibatch."""
        return None

    def publish(self, policy: AbstractPolicy, version: int) -> None:
        """Called after every learner step, with the version that its weights go by from now on."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


def frozen_copy(policy: AbstractPolicy) -> AbstractPolicy:
    """Its present weights, which nothing trains."""
    return copy.deepcopy(policy).requires_grad_(False)
