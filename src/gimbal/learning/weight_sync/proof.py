"""Delivery proof: after every sync each copy of the weights equals the trainer's and gives the trainer's log-probabilities.

Two tests. Bits (``receipts.py``): at every load, in every process, everything a copy holds is compared with the trainer's weights.
Canary: the engine must reproduce the trainer's log-probabilities of a few rollouts, for what bits do not show: a sampling path
that does not use them. Level: the mean |log-prob gap| lies within what the engine's numerics may cause. Movement: since the last proved
version the engine's log-probabilities moved along with the trainer's. The second sees a lost delivery even where a coarse
precision hides the first: with a and b the movements of trainer and engine over the canary's decisions, the slope <a, b> / <a, a> is 1
for delivered weights and 0 for lost ones. It is decided once the trainer has moved well beyond the numerical noise; until then
versions are counted as unproved by movement. Where the bits are seen and correct, half as much is enough (int4 weights of a policy
that sharpened fast once gave 0.44), with or without the decision that moved most. A sampler that has not moved by a single bit is
refused sooner than one that moved unexpectedly, since coarse weights move in jumps; and at once if its receipts show that half of its
weights changed, since then its log-probabilities must change at any learning rate.

With equal bits the same program gives the same output. So where the bits are seen, the canary runs at two consecutive
versions of every ``CANARY_EVERY``, otherwise at every version. It is the start of a few rollouts of one task, whose prompt is read in
one forward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gimbal.engines.base import AbstractEngine, Witness
from gimbal.engines.precision import TOLERANCE, Form
from gimbal.learning.base import AbstractTrained, trained
from gimbal.learning.weight_sync.receipts import KEPT, NotDelivered, Receipts, Travels
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Rollout

LOST_BELOW = 0.5  # slope half way between delivered (1) and lost (0); half of it where the bits that are held are known to be right
DECIDED = 2.0  # movement in units of the noise from which a slope is taken
CERTAIN = 4.0  # ... and from which it is held against a sampler that moves at all
CANARY_EVERY = 8  # versions
ROUNDED = 4e-6  # of a log-probability's own size: 64 units of float32, which a density of many saturated dimensions takes half of
MANY = 8  # tensors: a small network in bfloat16 may say the same although a few have changed


def asked(form: Form | None, version: int) -> bool:
    """Whether a copy of the weights that holds them in this form is asked for the canary at this version."""
    return form is None or not form.held or version % CANARY_EVERY <= 1


@dataclass(kw_only=True)
class Seen:
    """For one witness: both sides' values at its last proved version, and their distance."""

    proved: tuple[Tensor, Tensor] | None = None  # trainer's and engine's log-probs
    unproved: int = 0  # versions since the last one proved by movement
    noise: float = 0.0  # largest root mean square gap of a proved version
    said: tuple[int, Tensor] | None = None  # the version and the log-probs of its last answer

    def prove(self, trainer_D: Tensor, sampler_D: Tensor) -> None:
        self.proved, self.unproved = (trainer_D, sampler_D), 0
        self.noise = max(self.noise, float((sampler_D - trainer_D).square().mean().sqrt()))


class DeliveryProof:
    """Holds the canary (a few recorded rollouts) and the observations of each copy of the weights.

    Copies in other processes answer with a delay, so the trainer's side is kept for the last ``KEPT`` versions.
    """

    def __init__(
        self,
        source: AbstractPolicy | AbstractTrained,
        canary: Sequence[Rollout],
        travels: Travels = lambda tensor: tensor,
    ) -> None:
        assert canary, "a canary is at least one rollout"
        self.source, self.canary = trained(source), list(canary)
        self.receipts = Receipts(self.source, travels)
        self.trainer: dict[int, Tensor] = {}  # the trainer's log-probs of the canary, by version
        self.seen: dict[str, Seen] = {}

    def __call__(self, engine: AbstractEngine, version: int) -> dict[str, float]:
        """Raises NotDelivered, or returns how many receipts were in order since the last call and, where the canary was asked, its
        metrics, the worst over the copies that have answered."""
        self.receipts.arrived(engine, version)
        counted = {"sync/receipts": float(self.receipts.count)}
        self.receipts.count = 0
        if not asked(engine.form, version):
            return counted
        self.trainer[version] = self._trainer_D()
        for old in sorted(self.trainer)[:-KEPT]:
            del self.trainer[old]
        # One that joined at another version has answered for it unasked.
        words = [witness for witness in engine.witness(version, self.canary) if witness.due in self.trainer]
        found = [self._judge(witness, max(engine.tolerance, self.rounding)) for witness in words]
        names = {name for metrics in found for name in metrics}
        worst = {name: (min if name == "sync/slope" else max)(m[name] for m in found if name in m) for name in names}
        if (before_D := self.trainer.get(version - 1)) is not None:
            worst["sync/moved"] = float((self.trainer[version] - before_D).abs().mean())
        return counted | dict(sorted(worst.items()))

    @cached_property
    def rounding(self) -> float:
        """The tolerance for the trainer's own precision: its numbers are as coarse as a sampler's in that precision."""
        types = {w.dtype for w in self.source.weights().values()} | {self.source.compute or torch.float32}
        coarse = any(kind.is_floating_point and kind.itemsize < 4 for kind in types)
        return TOLERANCE["bfloat16"] if coarse else 0.0

    def resumed(self, engine: AbstractEngine, version: int) -> None:
        """A continued run's check: only its bits, since this version's canary already ran."""
        self.receipts.arrived(engine, version)
        self.receipts.count = 0

    def _judge(self, witness: Witness, tolerance: float) -> dict[str, float]:
        who, version = f"of {witness.who} " if witness.who else "", witness.due
        if witness.version != version:
            raise NotDelivered(
                f"the sampler {who}is at version {witness.version}, not {version}: the sync did not reach it"
            )
        if tolerance == math.inf:
            return {}  # this engine draws nothing by weights (demonstrations): its answer never moves, and should not
        trainer_D, sampler_D, seen = self.trainer[version], witness.logprob_D, self.seen.setdefault(witness.who, Seen())
        if seen.said is not None and torch.equal(sampler_D, seen.said[1]) and self._otherwise(seen.said[0], version):
            raise NotDelivered(
                f"weights of version {version} are not used: the sampler {who}holds them, but its canary log-probabilities equal those "
                f"of version {seen.said[0]} to the last bit, although most tensors have changed since"
            )
        seen.said = (version, sampler_D)
        gap_D = (sampler_D - trainer_D).abs()
        gap = float(gap_D.mean())
        if not float((gap_D - ROUNDED * trainer_D.abs()).clamp(min=0).mean()) <= tolerance:  # NaN fails too
            raise NotDelivered(
                f"weights of version {version} were not delivered: on the canary the log-probabilities of the sampler {who}are "
                f"{gap:.3g} away from the trainer's on average, where its precision explains {tolerance:.3g}{self._held(version)}"
            )
        metrics = {"sync/gap": gap}
        if seen.proved is None:
            seen.prove(trainer_D, sampler_D)
            return metrics
        moved, followed = trainer_D - seen.proved[0], sampler_D - seen.proved[1]
        read = self._read(version)
        tried = [_along(moved, followed)]
        # Where bits are right only rounding is left, and that of one rare token may be as large as all else that moves.
        if read:
            tried.append(_along(torch.where(moved.abs() < moved.abs().max(), moved, 0.0), followed))
        for distance, slope in tried:
            if distance > DECIDED * seen.noise and slope >= (LOST_BELOW / 2 if read else LOST_BELOW):
                seen.prove(trainer_D, sampler_D)
                return metrics | {"sync/slope": slope, "sync/unproved_versions": 0.0}
        still = tried[0][0] > DECIDED * seen.noise and not bool(followed.any())
        if still or tried[-1][0] > CERTAIN * seen.noise:
            raise NotDelivered(
                f"weights of version {version} were not delivered: over {seen.unproved + 1} versions the trainer's log-probabilities "
                f"of the canary moved and those of the sampler {who}followed by {tried[-1][1]:.2f} of it (1 is delivered, 0 lost)"
            )
        seen.unproved += 1
        return metrics | {"sync/unproved_versions": float(seen.unproved)}

    def _held(self, version: int) -> str:
        """What else may be the cause, where the sampler has shown that it holds the very bits it was to hold."""
        if not self._read(version):
            return ""
        return (
            ". Its weights are bit-exact, so it computes something else with them, or the policy is too sharp for this precision: "
            "engine.precision=float32 tells which"
        )

    def _read(self, version: int) -> bool:
        """Whether the trainer's own tensors were compared, and not only what a sampler makes of some of them."""
        return not self.source.weights().keys().isdisjoint(self.receipts.manifests.get(version, {}))

    def _otherwise(self, old: int, new: int) -> bool:
        """Whether what was asked at both versions must have been answered otherwise. A policy that takes its best choice says the same
        for as long as that stays the best one, and so does the trainer."""
        before_D = self.trainer.get(old)
        return self._moved(old, new) and (before_D is None or not torch.equal(before_D, self.trainer[new]))

    def _moved(self, old: int, new: int) -> bool:
        """Whether at least half of the tensors that travel, and ``MANY``, are held otherwise at one version than at the other."""
        one, other = (self.receipts.manifests.get(version, {}) for version in (old, new))
        names = [name for name in self.source.weights() if name in one and name in other]
        changed = sum(one[name] != other[name] for name in names)
        return changed >= max(MANY, len(names) / 2)

    def _trainer_D(self) -> Tensor:
        """All rollouts in one forward pass."""
        decisions = type(self.canary[0].decisions).stack([rollout.decisions for rollout in self.canary])
        logprob_NS = self.source.logprobs(decisions, self.canary[0].sampling.temperature)
        return torch.cat([logprob_NS[row, : rollout.length] for row, rollout in enumerate(self.canary)])

    def state_dict(self) -> dict[str, Any]:
        seen = {who: (one.proved, one.unproved, one.noise) for who, one in self.seen.items()}
        return {"canary": self.canary, "trainer": dict(self.trainer), "seen": seen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.canary, self.trainer = state["canary"], dict(state["trainer"])
        self.seen = {who: Seen(proved=p, unproved=u, noise=n) for who, (p, u, n) in state["seen"].items()}


def _along(moved_D: Tensor, followed_D: Tensor) -> tuple[float, float]:
    """How far the trainer moved, root mean square beyond float32's own noise, and how much of it the sampler followed."""
    square = float(moved_D.square().sum())
    return (square / len(moved_D)) ** 0.5 - 1e-6, float((moved_D * followed_D).sum()) / max(square, 1e-30)
