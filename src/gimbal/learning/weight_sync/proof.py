"""Delivery proof: after every sync the sampler must reproduce the trainer's log-probabilities of a canary.

Three tests. Level: the mean |log-prob gap| between engine and trainer on the canary lies within what the engine's numerics may
cause. Movement: since the last proved version the engine's log-probabilities moved along with the trainer's. The second sees a
lost delivery even where a coarse precision hides the first: with a and b the movements of trainer and engine over the canary's
decisions, the slope <a, b> / <a, a> is 1 for delivered weights and 0 for lost ones. It is decided once the trainer has moved
well beyond the numerical noise; until then versions are counted as unproved by movement. A sampler that has not moved by a single
bit is refused sooner than one that moved otherwise than expected, for coarse weights move by leaps. Bits: an engine that can tell
compares its weights with what loading the trainer's leaves, each tensor at one of ``AUDIT_PARTS`` versions, in turn. What goes wrong
goes wrong in a layer, an adapter or all over, seldom in one tensor, and every ``AUDIT_PARTS``-th tensor meets each layer: most faults
are seen at once and none later than ``AUDIT_PARTS`` versions. A few log-probabilities of a coarse sampler cannot tell a layer that
is a version late, or an adapter merged in low precision, from rounding: the third test can, and where weights come from afar
(``delta.py``) the digest of all bits does the same at every version.

At equal bits the same program says the same. So where the bits are seen the canary is asked at two versions running of every
``AUDIT_PARTS``, for what bits do not show (a sampling path that does not use them), and where they are not, at every version. It is
the beginning of a few rollouts of one task, whose prompt one forward pass reads once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from gimbal.engines.base import AbstractEngine, Witness
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout

LOST_BELOW = 0.5  # slope half way between delivered (1) and lost (0)
DECIDED = 2.0  # movement in units of the noise from which a slope is taken
CERTAIN = 4.0  # ... and from which it is held against a sampler that moves at all
AUDIT_PARTS = 8  # comparing all weights costs about as much as loading them
KEPT = 64  # versions: no sampler is that far behind unless its calls hang, and then it is replaced


class NotDelivered(ValueError):
    """The sampler does not run the weights that it is said to run."""


@dataclass(kw_only=True)
class Seen:
    """Of one witness: what both sides said at its last proved version, and how far they were apart."""

    proved: tuple[Tensor, Tensor] | None = None  # trainer's and engine's log-probs
    unproved: int = 0  # versions since the last one proved by movement
    noise: float = 0.0  # largest root mean square gap of a proved version

    def prove(self, trainer_D: Tensor, sampler_D: Tensor) -> None:
        self.proved, self.unproved = (trainer_D, sampler_D), 0
        self.noise = max(self.noise, float((sampler_D - trainer_D).square().mean().sqrt()))


class DeliveryProof:
    """Holds the canary (a few recorded rollouts) and what was seen of each copy of the weights.

    Copies in other processes answer when they get to it, so the trainer's side is kept for the last ``KEPT`` versions.
    """

    def __init__(self, policy: AbstractPolicy, canary: Sequence[Rollout]) -> None:
        assert canary, "a canary is at least one rollout"
        self.policy, self.canary = policy, list(canary)
        self.trainer: dict[int, Tensor] = {}  # the trainer's log-probs of the canary, by version
        self.seen: dict[str, Seen] = {}

    def __call__(self, engine: AbstractEngine, version: int) -> dict[str, float]:
        """Raises NotDelivered, or returns the metrics of the proof, the worst over the copies that have answered; none if only bits
        were compared."""
        if self._audited(engine, version) and version % AUDIT_PARTS > 1:
            return {}
        self.trainer[version] = self._trainer_D()
        for old in sorted(self.trainer)[:-KEPT]:
            del self.trainer[old]
        found = [self._judge(witness, engine.tolerance) for witness in engine.witness(version, self.canary)]
        names = {name for metrics in found for name in metrics}
        worst = {name: (min if name == "sync/slope" else max)(m[name] for m in found if name in m) for name in names}
        if (before_D := self.trainer.get(version - 1)) is not None:
            worst["sync/moved"] = float((self.trainer[version] - before_D).abs().mean())
        return dict(sorted(worst.items()))

    def _judge(self, witness: Witness, tolerance: float) -> dict[str, float]:
        who, version = f"of {witness.who} " if witness.who else "", witness.due
        if witness.version != version:
            raise NotDelivered(
                f"the sampler {who}is at version {witness.version}, not {version}: the sync did not reach it"
            )
        trainer_D, sampler_D, seen = self.trainer[version], witness.logprob_D, self.seen.setdefault(witness.who, Seen())
        gap = float((sampler_D - trainer_D).abs().mean())
        if not gap <= tolerance:  # NaN fails too
            raise NotDelivered(
                f"weights of version {version} were not delivered: on the canary the log-probabilities of the sampler {who}are "
                f"{gap:.3g} away from the trainer's on average, where its precision explains {tolerance:.3g}"
            )
        metrics = {"sync/gap": gap}
        if seen.proved is None:
            seen.prove(trainer_D, sampler_D)
            return metrics
        moved, followed = trainer_D - seen.proved[0], sampler_D - seen.proved[1]
        distance = float(moved.square().mean().sqrt()) - 1e-6
        if distance > DECIDED * seen.noise:
            slope = float((moved * followed).sum() / moved.square().sum())
            if slope >= LOST_BELOW:
                seen.prove(trainer_D, sampler_D)
                return metrics | {"sync/slope": slope, "sync/unproved_versions": 0.0}
            if distance > CERTAIN * seen.noise or not bool(followed.any()):
                raise NotDelivered(
                    f"weights of version {version} were not delivered: over {seen.unproved + 1} versions the trainer's "
                    f"log-probabilities of the canary moved and those of the sampler {who}followed by {slope:.2f} of it "
                    "(1 is delivered, 0 lost)"
                )
        seen.unproved += 1
        return metrics | {"sync/unproved_versions": float(seen.unproved)}

    def _audited(self, engine: AbstractEngine, version: int) -> bool:
        """Whether the engine showed bits of this version, and they are right."""
        if engine.version != version:
            return False
        wrong = engine.differing(self.policy.state_dict(), version % AUDIT_PARTS, AUDIT_PARTS)
        if wrong:
            raise NotDelivered(
                f"weights of version {version} were not delivered: of every {AUDIT_PARTS}th tensor {len(wrong)} are not the trainer's "
                f"as the sampler's precision holds them, {', '.join(wrong[:3])} among them"
            )
        return wrong is not None

    def _trainer_D(self) -> Tensor:
        """All rollouts in one forward pass."""
        device = next(self.policy.parameters()).device
        decisions = type(self.canary[0].decisions).stack([rollout.decisions for rollout in self.canary])
        with torch.inference_mode():
            found = self.policy.evaluate(decisions.to(device), temperature=self.canary[0].sampling.temperature)
        rows = [found.logprob_NS[row, : rollout.length] for row, rollout in enumerate(self.canary)]
        return torch.cat(rows).float().cpu()

    def state_dict(self) -> dict[str, Any]:
        seen = {who: (one.proved, one.unproved, one.noise) for who, one in self.seen.items()}
        return {"canary": self.canary, "trainer": dict(self.trainer), "seen": seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.canary, self.trainer = state["canary"], dict(state["trainer"])
        self.seen = {who: Seen(proved=p, unproved=u, noise=n) for who, (p, u, n) in state["seen"].items()}
