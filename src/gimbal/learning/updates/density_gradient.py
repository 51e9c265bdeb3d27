"""CDSA's models of recorded data: the gradients of its densities, what follows an action, and which action leads there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.dataflow.replay.transitions import FRESH, MOVE
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.off_policy import AbstractOnDecisions, counted_of, means, steps_of, summed
from gimbal.policies.toward_data import TowardData, TowardDataPolicy
from gimbal.records import TrainBatch

OF_ACTION, OF_STATE, LEVEL = "noise/action", "noise/state", "noise/level"  # facts: what is added, and how far up it is
MEASURED = 256  # observations of a step at which the correction is measured


@dataclass(frozen=True, kw_only=True)
class DensityGradient(AbstractOnDecisions):
    """Learns what ``TowardData`` corrects a frozen policy by: denoising score matching on recorded steps, and their dynamics both ways
    (CDSA, arXiv:2406.07541). No reward is read, and the frozen policy has no part in it: it may be exchanged.

    For each minibatch of steps (o, a, o'), w being 1 / their number, x = a / b with the policy's bound b, observations and their
    changes in units of their spread, e ~ N(0, 1) in each dimension, and log s uniform between those of ``least`` and ``most``:

        policy    sum w (mean_A (e_a(o, x + s e, s) - e)^2 + mean_O (e_o(o' + s e, s) - e)^2
                         + mean_O (F(o, x) - (o' - o))^2 + mean_A (I(o, o' - o) - x)^2)

    which is s^2 |score + e / s|^2 for the scores - e_a / s and - e_o / s. The four networks share no weights.
    ``score/action`` and ``score/state`` are the first two: 1 is what knowing nothing gives. ``dynamics/forward`` and
    ``dynamics/inverse`` are the others, 1 and the mean of x^2 respectively. ``correction/size`` is the mean of |a - base| / b in
    ``MEASURED`` recorded observations.

    - Data of one action in each state: e_a points to it, and its error goes to 0.
    - ``least`` = ``most``: one level of noise.

    Confidence: partial. The parts are the paper's, which was read in its abstract; how their actions are mixed, and all numbers, are
    ours: the way that the state takes counts as I(o, p - s e_o) - I(o, p), so that an inexact I alone moves nothing.
    """

    least: float = 0.01
    most: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.least <= self.most < math.inf:
            raise ValueError(
                f"DensityGradient has least {self.least} and most {self.most}: levels of noise, above 0, the first no larger"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def models(self) -> dict[str, ModelSpec]:
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy = whole.run.policy
        if not isinstance(policy, TowardData):
            yield Refusal(
                f"DensityGradient learns what brings actions nearer to data, and {type(policy).__name__} has none of it: "
                "policy='TowardData(observations=..., actions=..., bound=..., base=runs/RUN/model)'"
            )
        elif not self.least <= policy.noise <= self.most:
            yield Refusal(
                f"policy.noise is {policy.noise:g}, and noise from {self.least:g} to {self.most:g} is learned: set policy.noise "
                "within, or update.least and update.most around it"
            )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        steps, policy, number_N = steps_of(batch), models.policy, batch.facts.get(MOVE)
        fresh_NS = batch.mask_NS if number_N is None else batch.mask_NS & (number_N == FRESH)[:, None]
        batch, told = super().prepare(models, batch)
        assert isinstance(policy, TowardDataPolicy), type(policy)
        before_KO, after_KO = steps.observation_NSO[fresh_NS], steps.next_NSO[fresh_NS]
        policy.changes.observe(policy.normal(after_KO) - policy.normal(before_KO))
        return batch, told

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        n, s = batch.shape
        seen, actions = steps_of(batch).observation_NSO.shape[-1], steps_of(batch).action_NSA.shape[-1]
        drawn = {
            name: models.random(name).standard_normal((n, s, size), dtype=np.float32)
            for name, size in ((OF_ACTION, actions), (OF_STATE, seen))
        }
        drawn[LEVEL] = models.random(LEVEL).random((n, s, 1), dtype=np.float32)
        return {name: torch.from_numpy(x) for name, x in drawn.items()}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: TowardDataPolicy = models[POLICY]
        steps, counted = steps_of(batch), counted_of(batch)
        weight_K, level_K1 = counted(batch.facts["weight"]), counted(batch.facts[LEVEL])
        noise_K1 = (math.log(self.least) + level_K1 * (math.log(self.most) - math.log(self.least))).exp()
        seen_KO, next_KO = policy.normal(counted(steps.observation_NSO)), policy.normal(counted(steps.next_NSO))
        share_KA = (counted(steps.action_NSA) / policy.bound).clamp(-1, 1)
        change_KO = policy.changes(next_KO - seen_KO)
        of_action_KA, of_state_KO = counted(batch.facts[OF_ACTION]), counted(batch.facts[OF_STATE])
        errors = {
            "score/action": policy.action_noise(seen_KO, share_KA + noise_K1 * of_action_KA, noise_K1) - of_action_KA,
            "score/state": policy.state_noise(next_KO[:, :0], next_KO + noise_K1 * of_state_KO, noise_K1) - of_state_KO,
            "dynamics/forward": policy.forward_change(seen_KO, share_KA) - change_KO,
            "dynamics/inverse": policy.inverse(seen_KO, change_KO) - share_KA,
        }
        squared = {name: error_KD.square().mean(-1) for name, error_KD in errors.items()}
        loss_K = torch.stack(list(squared.values())).sum(0)
        told = means(weight_K, {"loss": loss_K, **squared})
        yield Loss(of=(POLICY,), value=summed(weight_K, loss_K), metrics=told)

    @torch.no_grad()
    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        policy: TowardDataPolicy = models[POLICY]
        rows = batch.select(torch.arange(min(MEASURED, batch.shape[0])))
        seen_KO = counted_of(rows)(steps_of(rows).observation_NSO)
        still_K = torch.zeros_like(seen_KO[:, 0])
        base_KA = policy.of_base(seen_KO, still_K[:, None].expand(-1, policy.actions), still_K)
        apart_KA: Float[Tensor, "K A"] = policy.centre(seen_KO) - base_KA
        return {"correction/size": float((apart_KA / policy.bound).abs().mean())}
