"""Where the anchor of the trust region comes from."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import ABSORBS_DISCREPANCY, AT_SAMPLING, AbstractPart
from gimbal.learning.ranks import several
from gimbal.objectives.base import DISCREPANCY
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Group, TrainBatch


@runtime_checkable
class Evaluate(Protocol):
    """logprob_NS without gradient; under the trainer's current weights or another policy."""

    def __call__(self, batch: TrainBatch, policy: AbstractPolicy | None = None, /) -> Float[Tensor, "N S"]: ...


@dataclass(frozen=True, kw_only=True)
class Forward:
    """How the learner evaluates rows: at this temperature, in micro-batches of limited size."""

    temperature: float
    tokens: int

    def columns_of(
        self, policy: AbstractPolicy, columns: Collection[str] = ()
    ) -> Callable[[TrainBatch], Mapping[str, Tensor]]:
        """Of a micro-batch: ``logprob_NS`` and the columns asked for."""

        def evaluate(micro: TrainBatch) -> Mapping[str, Tensor]:
            assert micro.decisions is not None
            evaluated = policy.evaluate(micro.decisions, temperature=self.temperature, columns=columns)
            return {"logprob_NS": evaluated.logprob_NS, **evaluated.columns}

        return evaluate


class AbstractAnchor(AbstractPart, ABC):
    """(batch, evaluate) -> proximal_NS, before the first update on the batch.

    A frozen dataclass. One that keeps its own weights returns a live anchor from ``start``, which the learner then uses: it sees
    every update (``observe``) and is saved with the run. ``absorbs`` names ratios that this choice folds into "update": with Behavior
    as anchor, no discrepancy is left to correct.
    """

    absorbs: ClassVar[frozenset[str]] = frozenset()
    at_sampling: ClassVar[bool] = False  # it is the policy of the version that drew each decision

    def effects(self) -> frozenset[str]:
        does = {AT_SAMPLING: self.at_sampling, ABSORBS_DISCREPANCY: DISCREPANCY in self.absorbs}
        return frozenset(effect for effect, so in does.items() if so)

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
        """Called after every learner step, with the new version of its weights."""
        return None

    def arrived(self, group: Group, forward: Forward) -> None:
        """Called with a group when it starts waiting for its batch."""
        return None

    def before_update(self, held: Callable[[], Sequence[Group]], evaluate: Evaluate) -> None:
        """Called before every learner step; ``held`` gives everything sampled for later ones, including unfinished rollouts."""
        return None

    def nbytes(self) -> int:
        """Memory that it holds for its purpose, wherever that is."""
        return 0

    def close(self) -> None:
        """Called once, when nothing more will be asked of it."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


def frozen_copy(policy: AbstractPolicy) -> AbstractPolicy:
    """Its present weights, which nothing trains."""
    return copy.deepcopy(policy).requires_grad_(False)


def refuse_several_processes() -> None:
    """Raises where the learner is one of several processes, each with a part of the weights."""
    if several():
        raise ValueError(
            "a learner in several processes evaluates old versions itself: use anchor=SamplingVersion(...), with apart=false"
        )


def weight_bytes(policy: AbstractPolicy) -> int:
    """Of one copy of its weights."""
    return sum(x.numel() * x.element_size() for x in policy.parameters())


def keys_of(batch: TrainBatch) -> list[tuple[int, int, int]]:
    """(group, sample, which row of its episode) of each row of a whole batch."""
    group_N, sample_N = batch.column("group_N", batch).tolist(), batch.column("sample_N", batch).tolist()
    episode_N = range(batch.shape[0]) if batch.episode_N is None else batch.episode_N.tolist()
    seen: Counter[int] = Counter()
    keys = []
    for group, sample, episode in zip(group_N, sample_N, episode_N, strict=True):
        keys.append((group, sample, seen[episode]))
        seen[episode] += 1
    return keys
