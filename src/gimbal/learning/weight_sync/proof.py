"""Delivery proof: after every sync the sampler must reproduce the trainer's log-probabilities of a canary.

Two tests. Level: the mean |log-prob gap| between engine and trainer on the canary lies within what the engine's numerics may
cause. Movement: since the last proved version the engine's log-probabilities moved along with the trainer's. The second sees a
lost delivery even where a coarse precision hides the first: with a and b the movements of trainer and engine over the canary's
decisions, the slope <a, b> / <a, a> is 1 for delivered weights and 0 for lost ones. It is decided once the trainer has moved
well beyond the numerical noise; until then versions are counted as unproved by movement. A sampler that has not moved by a single
bit is refused sooner than one that moved otherwise than expected, for coarse weights move by leaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gimbal.engines.base import AbstractEngine
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout

LOST_BELOW = 0.5  # slope half way between delivered (1) and lost (0)
DECIDED = 2.0  # movement in units of the noise from which a slope is taken
CERTAIN = 4.0  # ... and from which it is held against a sampler that moves at all


class NotDelivered(ValueError):
    """The sampler does not run the weights that it is said to run."""


class DeliveryProof:
    """Holds the canary (a few recorded rollouts) and what both sides said of it at the last proved version."""

    def __init__(self, policy: AbstractPolicy, canary: Sequence[Rollout]) -> None:
        assert canary, "a canary is at least one rollout"
        self.policy, self.canary = policy, list(canary)
        self.proved: tuple[Tensor, Tensor] | None = None  # trainer's and engine's log-probs
        self.unproved = 0  # versions since the last one proved by movement
        self.noise = 0.0  # largest root mean square gap of a proved version

    def __call__(self, engine: AbstractEngine, version: int) -> dict[str, float]:
        """Raises NotDelivered, or returns the metrics of the proof."""
        if engine.version != version:
            raise NotDelivered(f"the sampler is at version {engine.version}, not {version}: the sync did not reach it")
        trainer = torch.cat([self._trainer_S(rollout) for rollout in self.canary])
        sampler = torch.cat([engine.score(rollout).cpu() for rollout in self.canary])
        gap = float((sampler - trainer).abs().mean())
        if not gap <= engine.tolerance:  # NaN fails too
            raise NotDelivered(
                f"weights of version {version} were not delivered: on the canary the sampler's log-probabilities are {gap:.3g} "
                f"away from the trainer's on average, where its precision explains {engine.tolerance:.3g}"
            )
        metrics = {"sync/gap": gap}
        if self.proved is None:
            self._prove(trainer, sampler)
            return metrics
        moved, followed = trainer - self.proved[0], sampler - self.proved[1]
        distance = float(moved.square().mean().sqrt()) - 1e-6
        if distance > DECIDED * self.noise:
            slope = float((moved * followed).sum() / moved.square().sum())
            if slope >= LOST_BELOW:
                self._prove(trainer, sampler)
                return metrics | {"sync/slope": slope, "sync/unproved_versions": 0.0}
            if distance > CERTAIN * self.noise or not bool(followed.any()):
                raise NotDelivered(
                    f"weights of version {version} were not delivered: over {self.unproved + 1} versions the trainer's "
                    f"log-probabilities of the canary moved and the sampler's followed by {slope:.2f} of it (1 is delivered, 0 lost)"
                )
        self.unproved += 1
        return metrics | {"sync/unproved_versions": float(self.unproved)}

    def _prove(self, trainer: Tensor, sampler: Tensor) -> None:
        self.proved, self.unproved = (trainer, sampler), 0
        self.noise = max(self.noise, float((sampler - trainer).square().mean().sqrt()))

    def _trainer_S(self, rollout: Rollout) -> Tensor:
        device = next(self.policy.parameters()).device
        with torch.no_grad():
            evaluation = self.policy.evaluate(rollout.decisions.to(device), temperature=rollout.sampling.temperature)
        return evaluation.logprob_NS[0].float().cpu()

    def state_dict(self) -> dict[str, Any]:
        return {"canary": self.canary, "proved": self.proved, "unproved": self.unproved, "noise": self.noise}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.canary, self.proved = state["canary"], state["proved"]
        self.unproved, self.noise = state["unproved"], state["noise"]
