"""An engine that draws some groups at another temperature, hotter or colder by the policy's entropy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.composition import ABSORBS_DISCREPANCY, TEMPERS, Composition, Refusal, Verdict
from gimbal.engines.base import AbstractEngine, AbstractEngineAround, AbstractEngineSpec, Finished, Request
from gimbal.engines.native import Native
from gimbal.objectives.base import AbstractCorrection
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout


@dataclass(frozen=True, kw_only=True)
class Tempered(AbstractEngineSpec):
    """One group in ``every`` is drawn ``high`` times as hot while entropy is at most ``target``, else ``low`` times as hot (AEPO).

    AEPO, arXiv:2510.08141: it feeds TemperedImitation, which has the policy imitate what went well at that temperature. Entropy is
    the mean over the decisions of the other groups, finished since the last but one delivery of weights; until it is known, all is
    drawn as asked. ``engine`` must record entropy.

    - ``target`` = -inf or inf: always colder, or always hotter.
    - ``high`` = ``low`` = 1: ``engine`` as it is.

    Published: ``high`` 1.2, ``low`` 0.8, ``target`` 0.25 to 0.75, a second batch of a quarter of the prompts of which few rollouts are
    kept; ours: ``every``.
    """

    engine: AbstractEngineSpec = Native(entropy=True)
    target: float = 0.5
    high: float = 1.2
    low: float = 0.8
    every: int = 16

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1 <= self.high:
            raise ValueError(
                f"Tempered multiplies the temperature by {self.high} to raise entropy and by {self.low} to lower it: let high be at "
                "least 1, and low at most 1 and above 0"
            )
        if self.every < 2:
            raise ValueError(f"Tempered.every is {self.every}; it leaves groups to measure only from 2 on")

    def start(self, policy: AbstractPolicy) -> TemperedEngine:
        return TemperedEngine(self, self.engine.start(policy))

    def effects(self) -> frozenset[str]:
        return frozenset({TEMPERS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractCorrection) or whole.doing(ABSORBS_DISCREPANCY):
            yield Refusal(
                "Tempered draws some groups at another temperature on purpose, and a correction for the sampler would undo it: "
                "correction=None and anchor=Recompute()"
            )
        if not whole.has(TemperedImitation):
            yield Refusal(
                "Tempered draws some groups at another temperature, which must not train as if on-policy: "
                "add TemperedImitation() to shaping"
            )


class TemperedEngine(AbstractEngineAround):
    """The live engine around another; all the members of a group are submitted at once, so they share a temperature."""

    def __init__(self, spec: Tempered, inner: AbstractEngine) -> None:
        self.spec, self.inner = spec, inner
        self.entropy: float | None = None  # as measured under the weights before the present ones
        self._total, self._count = 0.0, 0

    def submit(self, request: Request) -> None:
        if self._chosen(request.group) and self.entropy is not None:
            factor = self.spec.high if self.entropy <= self.spec.target else self.spec.low
            sampling = replace(request.sampling, temperature=factor * request.sampling.temperature)
            request = replace(request, sampling=sampling)
        self.inner.submit(request)

    def step(self) -> list[Finished]:
        finished = self.inner.step()
        for item in finished:
            if not self._chosen(item.key[0]):
                self._measure(item.rollout)
        return finished

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        super().load(version, state)
        if self._count:
            self.entropy = self._total / self._count
        self._total, self._count = 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        return super().state_dict() | {"entropy": self.entropy, "measured": (self._total, self._count)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.entropy, (self._total, self._count) = state["entropy"], state["measured"]

    def _chosen(self, group: int) -> bool:
        return group % self.spec.every == self.spec.every - 1

    def _measure(self, rollout: Rollout) -> None:
        if rollout.entropy_S is None:
            raise ValueError(
                "Tempered goes by the entropy that its engine records, and it records none: set engine.engine.entropy=true"
            )
        entropy_S = rollout.entropy_S[rollout.mask_S]
        self._total += float(entropy_S.double().sum())
        self._count += len(entropy_S)
