"""An engine that copies: each task brings its completion. With ``Likelihood`` as objective this is supervised training."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import AbstractEngine, AbstractEngineSpec, Finished, Request
from gimbal.objectives.base import AbstractCorrection
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import TokenPolicy, Tokens
from gimbal.records import Rollout
from gimbal.rewards.recorded import chosen


@dataclass(frozen=True, kw_only=True)
class Demonstrated(AbstractEngineSpec):
    """Completions are taken from ``task.columns["completion"]``, with the end-of-text token after them if they ``end``.

    A list of texts there is one for each sample, for offline data that compares several (rewards.Recorded has their scores).
    """

    end: bool = True

    def start(self, policy: AbstractPolicy) -> DemonstratedEngine:
        assert isinstance(policy, TokenPolicy), "demonstrations are texts"
        return DemonstratedEngine(policy, self.end)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractCorrection):
            yield Refusal("demonstrations were not sampled, so no ratio to a sampler means anything: correction=None")


class DemonstratedEngine(AbstractEngine):
    """Nothing is sampled, so ``behavior`` is 0 (certainty), and every weight will do."""

    def __init__(self, policy: TokenPolicy, end: bool = True) -> None:
        self.policy, self.end = policy, end
        self.queue: deque[Request] = deque()
        self._version = -1

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return float("inf")

    @property
    def in_flight(self) -> int:
        return len(self.queue)

    def submit(self, request: Request) -> None:
        self.queue.append(request)

    def step(self) -> list[Finished]:
        finished = [Finished.of(request.key, self._rollout(request)) for request in self.queue]
        self.queue.clear()
        return finished

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        self.queue = deque(request for request in self.queue if request.key != key)
        return None

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self._version = version

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        return rollout.behavior_S

    def state_dict(self) -> dict[str, Any]:
        return {"queue": list(self.queue)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.queue = deque(state["queue"])

    def _rollout(self, request: Request) -> Rollout:
        text = chosen(request.task, "completion", request.sample)
        ending = self.policy.end_ids[:1] if self.end else ()
        ids = [*self.policy.tokenizer.encode(text, add_special_tokens=False), *ending]
        return Rollout(
            task=request.task,
            sample=request.sample,
            decisions=Tokens.row(self.policy.encode_task(request.task), ids),
            behavior_S=torch.zeros(len(ids)),
            version_S=torch.full((len(ids),), self._version),
            mask_S=torch.ones(len(ids), dtype=torch.bool),
            reward_S=torch.zeros(len(ids)),
            stop="stop",
            sampling=request.sampling,
            text=text,
        )
