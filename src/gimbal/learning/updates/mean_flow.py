"""Clones what agents do together by a flow that learns its mean velocities, so that one step draws."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.flow_q import START, TIME, cloning_noises
from gimbal.learning.updates.off_policy import AbstractOnDecisions, counted_of, means, steps_of, summed
from gimbal.policies.joint_flow import JointFlow, JointFlowPolicy
from gimbal.records import TrainBatch

SPAN = "noise/span"  # a fact: another place on the way, and whether it counts
MEASURED = 32  # observations of a step, in which one step is held against ten


@dataclass(frozen=True, kw_only=True)
class MeanFlow(AbstractOnDecisions):
    """Clones recorded actions by the mean velocities of a flow (MeanFlow, arXiv:2505.13447, as CoFlow trains it, arXiv:2605.01457).

    For each minibatch of steps (o, a), w being 1 / their number and b the policy's bound, with x_0 ~ N(0, 1) in each dimension, two
    times t <= s uniform in [0, 1), x_t = (1 - t) x_0 + t a / b, v = a / b - x_0, d = s - t and h = min(``delta``, d):

        policy    sum w mean_A (u(o, x_t, t, d) - u*)^2
        u*        = sg[ v + (d / h) (u(o, x_t + h v, t + h, d - h) - u(o, x_t, t, d)) ]

    A share ``straight`` of the steps has s = t, where u* = v, which is flow matching. The others ask for the identity
    u = v + d du/dt along the way, of the mean velocity between t and s; its derivative is taken by a difference of two passes.

    ``flow/coupling`` is the mean gate of what agents tell each other, ``flow/few`` how far one step ends from ten, as a share of the
    bound.

    - ``policy.averaged`` false: flow matching, s = t always.
    - ``delta`` to 0: the identity with the exact derivative.
    - one agent: MeanFlow.

    Published: t and s by a sorted logit-normal distribution, a weight 1 / (error + c)^p, ``straight`` .5 to .75.

    Confidence: partial; ours: the form of u*, from the identity, uniform times, and no weight.
    """

    straight: float = 0.5
    delta: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.straight < 1 or not 0 < self.delta <= 1:
            raise ValueError(
                f"MeanFlow has straight {self.straight}, the share of steps that learn the velocity itself, from 0 to below 1, and "
                f"delta {self.delta}, above 0 and at most 1; for flow matching alone set policy.averaged=false"
            )

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def models(self) -> dict[str, ModelSpec]:
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not isinstance(whole.run.policy, JointFlow):
            yield Refusal(
                f"MeanFlow learns how far a flow leads, and {type(whole.run.policy).__name__} is told no span: "
                "policy='JointFlow(observations=..., actions=..., bound=..., agents=...)'"
            )

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: JointFlowPolicy = models[POLICY]
        span_NS2 = models.random(SPAN).random((*batch.shape, 2), dtype=np.float32)
        return cloning_noises(models, batch, policy.actions) | {SPAN: torch.from_numpy(span_NS2)}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: JointFlowPolicy = models[POLICY]
        steps, counted = steps_of(batch), counted_of(batch)
        weight_K, normal_KO = counted(batch.facts["weight"]), policy.normal(counted(steps.observation_NSO))
        start_KA, one_K1, other_K2 = (counted(batch.facts[name]) for name in (START, TIME, SPAN))
        averaged_K1 = (other_K2[:, 1:] >= self.straight) & policy.spec.averaged
        end_K1 = torch.where(averaged_K1, torch.maximum(one_K1, other_K2[:, :1]), one_K1)
        time_K1 = torch.where(averaged_K1, torch.minimum(one_K1, other_K2[:, :1]), one_K1)
        way_KA = counted(steps.action_NSA) / policy.bound - start_KA
        x_KA = start_KA + time_K1 * way_KA
        found_KA = policy.flow(normal_KO, x_KA, time_K1, end_K1 - time_K1)
        wanted_KA = self.wanted(policy.flow, normal_KO, x_KA, way_KA, time_K1, end_K1 - time_K1)
        error_K = (found_KA - wanted_KA).square().mean(-1)
        yield Loss(of=(POLICY,), value=summed(weight_K, error_K), metrics=means(weight_K, {"loss": error_K}))

    @torch.no_grad()
    def wanted(
        self,
        flow: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
        normal_KO: Float[Tensor, "K O"],
        x_KA: Float[Tensor, "K A"],
        way_KA: Float[Tensor, "K A"],
        time_K1: Float[Tensor, "K 1"],
        span_K1: Float[Tensor, "K 1"],
    ) -> Float[Tensor, "K A"]:
        """u*."""
        first_K1 = span_K1.clamp(max=self.delta)
        here_KA = flow(normal_KO, x_KA, time_K1, span_K1)
        there_KA = flow(normal_KO, x_KA + first_K1 * way_KA, time_K1 + first_K1, span_K1 - first_K1)
        steepness_K1 = torch.where(first_K1 > 0, span_K1 / first_K1.where(first_K1 > 0, 1), 0)
        return way_KA + steepness_K1 * (there_KA - here_KA)

    @torch.no_grad()
    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        policy: JointFlowPolicy = models[POLICY]
        rows = batch.select(torch.arange(min(MEASURED, batch.shape[0])))
        counted = counted_of(rows)
        normal_KO, noise_KA = policy.normal(counted(steps_of(rows).observation_NSO)), counted(rows.facts[START])
        one_KA, ten_KA = (policy.end(normal_KO, noise_KA, steps) for steps in (1, 10))
        return {"flow/few": float((one_KA - ten_KA).abs().mean()), "flow/coupling": policy.flow.coupling()}
