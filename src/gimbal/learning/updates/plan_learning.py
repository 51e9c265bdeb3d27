"""Trajectory Diffuser's models of recorded episodes: a drafter, a denoiser of plans, an inverse, and what earns how much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal import ops
from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.dataflow.replay.once import Once
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.implicit_q import expectile_loss
from gimbal.learning.updates.off_policy import AbstractOnDecisions, means, steps_of, summed
from gimbal.ops.discounted import discounted_sums
from gimbal.policies.control import output_of
from gimbal.policies.drafted_plan import DraftedPlan, DraftedPlanPolicy
from gimbal.records import TrainBatch

# Facts: noise, how much of it, returns from here on.
IN_PLAN, LEVEL, EARNED = "noise/plan", "noise/level", "plan/return"


@dataclass(frozen=True, kw_only=True)
class PlanLearning(AbstractOnDecisions):
    """Learns from whole recorded episodes what ``DraftedPlan`` plans by (Trajectory Diffuser, arXiv:2407.16142).

    With R_s = sum_{j>=s} ``gamma``^{j-s} r_j, observations o_s and returns in units of their spread, x = (o_{s+1}, ..., o_{s+H}),
    z ~ N(0, 1), k uniform in 1..K and A_k as in ``DraftedPlan``, the mean over all steps s that have H more:

        policy    mean (G(o_s, R_s) - (o_{s+1} - o_s, R_{s+1} - R_s))^2 + mean (e(sqrt(A_k) x + sqrt(1 - A_k) z, o_s, R_s, k) - z)^2
                  + mean (I(o_s, o_{s+1} - o_s) - a_s / b)^2 + (C(o_s, a_s) - R_s)^2 + |``expectile`` - [d < 0]| d^2,   d = R_s - V(o_s)

    The five networks share no weights. An episode's last H steps teach nothing: the return of one that is cut off is not known there.
    ``plan/draft``, ``plan/noise``, ``plan/inverse`` and ``plan/judge`` are the first four, ``plan/steps`` is the share of steps that
    teach.

    - ``expectile`` = 1/2: V is the mean return, and plans are of what the data do in the mean.
    - ``gamma`` = 0: C is fitted to rewards.

    Published: a transformer over the history drafts, the return that is left of a given one is aimed at, a U-Net denoises with
    classifier-free guidance of 1.1 to 1.3, actions are drawn by softmax(C), and its weights are averaged.

    Confidence: partial; ours: all networks are plain and see one observation, V says what is aimed at, no guidance, the best C plays.
    """

    gamma: float = 0.95
    expectile: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.gamma <= 1 or not 0 < self.expectile < 1:
            raise ValueError(
                f"PlanLearning has gamma {self.gamma}, which is from 0 to 1, and expectile {self.expectile}, which is between them"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def models(self) -> dict[str, ModelSpec]:
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy = whole.run.policy
        if not isinstance(policy, DraftedPlan):
            yield Refusal(
                f"PlanLearning learns what plans are made by, and {type(policy).__name__} makes none: "
                "policy='DraftedPlan(observations=..., actions=..., bound=...)'"
            )
        if not whole.has(Once):
            yield Refusal(
                f"PlanLearning learns from whole episodes, and {type(whole.run.store).__name__} draws single steps: set store='Once()'"
            )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        batch, told = super().prepare(models, batch)
        policy, steps, mask_NS = models.policy, steps_of(batch), batch.mask_NS
        assert isinstance(policy, DraftedPlanPolicy), type(policy)
        reward_NS = batch.column("reward_NS", self)
        earned_NS = discounted_sums(reward_NS, mask_NS, self.gamma)
        policy.changes.observe((policy.normal(steps.next_NSO) - policy.normal(steps.observation_NSO))[mask_NS])
        policy.returns.observe(earned_NS[mask_NS][:, None])
        return batch.with_columns({EARNED: earned_NS}), told

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: DraftedPlanPolicy = models[POLICY]
        n, s = batch.shape
        width = policy.horizon * policy.config["observations"]
        plan_NSD = models.random(IN_PLAN).standard_normal((n, s, width), dtype=np.float32)
        level_NS = models.random(LEVEL).integers(1, policy.chain + 1, size=(n, s))
        return {IN_PLAN: torch.from_numpy(plan_NSD), LEVEL: torch.from_numpy(level_NS)}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """Equal weights of the steps that have a whole plan ahead."""
        policy: DraftedPlanPolicy = models[POLICY]
        whole_NS = minibatch.mask_NS & shifted(minibatch.mask_NS, policy.horizon)
        share = float(whole_NS.sum() / minibatch.mask_NS.sum().clamp(min=1))
        return minibatch.with_columns({"weight": ops.TokenMean()(whole_NS)}), {"plan/steps": share}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: DraftedPlanPolicy = models[POLICY]
        steps, weight_NS = steps_of(batch), batch.facts["weight"]
        whole_NS = weight_NS > 0
        seen_KO, next_NSO = policy.normal(steps.observation_NSO[whole_NS]), policy.normal(steps.next_NSO)
        ahead = [shifted(next_NSO, h)[whole_NS] for h in range(policy.horizon)]
        share_KA = (steps.action_NSA[whole_NS] / policy.bound).clamp(-1, 1)
        earned_NS = policy.returns(batch.facts[EARNED][..., None])[..., 0]
        earned_K1, later_K1 = earned_NS[whole_NS][:, None], shifted(earned_NS, 1)[whole_NS][:, None]
        noise_KD, level_K = batch.facts[IN_PLAN][whole_NS], batch.facts[LEVEL][whole_NS]
        kept_K1 = policy.kept_K[level_K - 1][:, None]
        noised_KD = kept_K1.sqrt() * torch.cat(ahead, -1) + (1 - kept_K1).sqrt() * noise_KD
        step_K1 = level_K[:, None].to(noised_KD.dtype)
        drafted_KI = output_of(policy.drafter, torch.cat([seen_KO, earned_K1], -1))
        errors = {
            "plan/draft": drafted_KI - torch.cat([ahead[0] - seen_KO, later_K1 - earned_K1], -1),
            "plan/noise": policy.noise_in(noised_KD, seen_KO, earned_K1, step_K1) - noise_KD,
            "plan/inverse": policy.inverse(seen_KO, ahead[0]) - share_KA,
            "plan/judge": output_of(policy.judge, torch.cat([seen_KO, share_KA], -1)) - earned_K1,
        }
        squared = {name: error_KI.square().mean(-1) for name, error_KI in errors.items()}
        aimed_K = expectile_loss((earned_K1 - output_of(policy.aim, seen_KO))[:, 0], self.expectile)
        loss_K: Float[Tensor, " K"] = aimed_K + torch.stack(list(squared.values())).sum(0)
        weight_K = weight_NS[whole_NS]
        told = means(weight_K, {"loss": loss_K, "plan/aim": aimed_K, **squared})
        yield Loss(of=(POLICY,), value=summed(weight_K, loss_K), metrics=told)


def shifted(x_NSX: Tensor, by: int) -> Tensor:
    """What stands ``by`` steps later, 0 behind the end."""
    padding = (0, 0) * (x_NSX.ndim - 2) + (0, by)
    return nn.functional.pad(x_NSX, padding)[:, by:] if by else x_NSX
