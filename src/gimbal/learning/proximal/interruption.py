"""Old log-probabilities, computed just before their weights are dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import DRIVES, Composition, Refusal, Verdict
from gimbal.dataflow.packing import pack
from gimbal.engines.native import Native
from gimbal.learning.proximal.base import AbstractAnchor, Evaluate, keys_of, refuse_several_processes
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Group, TrainBatch


@dataclass(frozen=True)
class Interruption(AbstractAnchor):
    """proximal = log pi_v(decision), v the version that sampled it, without keeping old weights: before each update the run pauses, and
    the outgoing weights evaluate everything they have sampled, unfinished rollouts included (arXiv:2605.12070).

    Costs no copy of the weights, one number per waiting decision, and a forward pass over every rollout for each version that sampled
    part of it. Generation must pause while the weights move: runtime Local, engine Native. Works at any age, so also for Reweight.

    - at equal weights: SamplingVersion, including its notes on the engine's cache.
    - all data of the current version: Recompute.

    Confidence: verified.
    """

    at_sampling: ClassVar[bool] = True

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        raise TypeError("Interruption keeps log-probabilities: call start(policy) and use what it returns")

    def start(self, policy: AbstractPolicy) -> LiveInterruption:
        refuse_several_processes()
        return LiveInterruption()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        still = whole.run.runtime.stands_still and isinstance(whole.run.engine, Native)
        if not still or whole.doing(DRIVES):
            yield Refusal(
                "Interruption evaluates unfinished rollouts while generation is paused, as with runtime=Local(), "
                "engine=Native() and workflow=SingleTurn(): use these, or anchor=SamplingVersion(window=...)"
            )


class LiveInterruption(AbstractAnchor):
    """The log-probabilities so far of all waiting decisions, paired with the sampler's records."""

    def __init__(self) -> None:
        self.version = 0
        # By (group, sample, row): behavior, proximal.
        self.known: dict[tuple[int, int, int], tuple[Tensor, Tensor]] = {}

    def before_update(self, held: Callable[[], Sequence[Group]], evaluate: Evaluate) -> None:
        rollouts = {
            (group.index, episode.sample, number): (group, row)
            for group in held()
            for episode in group.episodes
            for number, row in enumerate(episode.rows)
        }
        self.known = {key: value for key, value in self.known.items() if key in rollouts}
        new = [key for key, (_, r) in rollouts.items() if r.length > len(self.known.get(key, ((),))[0])]
        if not new:
            return
        rows = [Group.of(key[0], rollouts[key][0].task, (rollouts[key][1],)) for key in new]
        proximal_NS = self(pack(rows), evaluate).cpu()
        for row, key in enumerate(new):
            rollout = rollouts[key][1]
            self.known[key] = (rollout.behavior_S, proximal_NS[row, : rollout.length])

    def __call__(self, batch: TrainBatch, evaluate: Evaluate) -> Float[Tensor, "N S"]:
        version_NS, behavior_NS = batch.column("version_NS", self), batch.column("behavior_NS", self)
        result_NS, open_NS = evaluate(batch).clone(), batch.mask_NS & (version_NS != self.version)
        for row, key in enumerate(keys_of(batch)):
            if key not in self.known:
                continue
            behavior_S, proximal_S = (column.to(result_NS) for column in self.known[key])
            count = len(proximal_S)
            counted_S = batch.mask_NS[row, :count]
            if torch.equal(behavior_S.where(counted_S, 0), behavior_NS[row, :count].to(result_NS)):
                result_NS[row, :count] = proximal_S
                open_NS[row, :count] = False
        if bool(open_NS.any()):
            raise ValueError(
                f"{int(open_NS.sum())} decisions of older versions were not evaluated while their weights existed: what sampled or "
                "changed them does not show unfinished rollouts; use anchor=SamplingVersion(...)"
            )
        return result_NS.where(batch.mask_NS, 0)

    def publish(self, policy: AbstractPolicy, version: int) -> None:
        self.version = version

    def nbytes(self) -> int:
        return sum(column.numel() * column.element_size() for pair in self.known.values() for column in pair)

    def state_dict(self) -> dict[str, Any]:
        return {"version": self.version, "known": dict(self.known)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.version, self.known = state["version"], dict(state["known"])
