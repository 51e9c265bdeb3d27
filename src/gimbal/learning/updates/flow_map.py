"""Distillation into any number of steps: a policy learns how far a flow leads, along paths that it walks itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.forward_process import acting, paths, weighed_alike
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy, alike, single_blocks
from gimbal.policies.paths import TRAILING, PathSampling
from gimbal.policies.samplers import wide
from gimbal.records import TrainBatch

TEACHER = "teacher"
STEP, PLACE = "flow_map/step", "flow_map/place"  # facts: [N, K], [N, K, 3]


@dataclass(frozen=True, kw_only=True)
class FlowMap(AbstractUpdate):
    """Teaches a policy that ``jumps`` the mean velocity u(x, t, r) from any noise t to any smaller r, so that it can sample in any
    number of steps (flow-map distillation on the policy's own paths, AnyFlow, arXiv:2605.13724).

    At a state x_t, with the teacher's velocity v_T and a first step of h = min(t - r, 1 / ``grid``):

        loss = md |u(x_t, t, r) - u*|^2,   u* = (h v_T(x_t, t) + (t - h - r) sg u(x_t - h v_T, t - h, r)) / (t - r)

    (md: the mean over a sample's numbers; sg: without gradient.)
    One long step is compared with two: a short one of the teacher, and the policy's own from where it leads. A quarter of the states
    has r = t, where u* = v_T; a quarter r = 0; the others any r between.

    ``walker`` "policy": x_t lies on the policy's own path: a recorded state at a random step, and a jump of the policy towards the
    next, of random length. "teacher": on the teacher's, in ``teacher_steps`` steps of the ODE from the same noise to t; this is the
    usual, off-policy distillation. ``draws`` states of each path.

    - t - r up to 1 / grid: u* = v_T, a step of the teacher.
    - a flow whose ways are straight: u* = v_T wherever u = v_T, so nothing changes.
    - grid to infinity: u = v_T - (t - r) du/dt along the flow, the identity of MeanFlow (arXiv:2505.13447), at its minimum.

    ``teacher`` None is the policy as the run began. Published: v_T is the data's eps - x0 in a first stage and the own paths come in a
    second, with scores of distribution matching; here they are in the same loss, and there is no data. The derivative is by central
    differences there, by the first step here.

    Confidence: verified for the map and its identity; the loss on own paths is ours.
    """

    teacher: Denoiser | None = None
    walker: Literal["policy", "teacher"] = "policy"
    draws: int = 4
    grid: int = 8
    teacher_steps: int = 8

    def __post_init__(self) -> None:
        if min(self.draws, self.grid, self.teacher_steps) < 1:
            raise ValueError(
                f"FlowMap.draws is {self.draws}, grid {self.grid} and teacher_steps {self.teacher_steps}; each must be at least 1"
            )

    def models(self) -> dict[str, ModelSpec]:
        taught = ModelSpec(first=True) if self.teacher is None else ModelSpec(load=self.teacher.load)
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy()), TEACHER: taught}

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        policy, sampling = whole.run.policy, whole.run.sampling
        if not isinstance(policy, Denoiser):
            yield Refusal("FlowMap learns the steps of a network that denoises: policy='Denoiser(jumps=true)'")
        elif not policy.jumps:
            yield Refusal("FlowMap learns steps of any length, and the network is not told it: set policy.jumps=true")
        yield from single_blocks("FlowMap", whole)
        if isinstance(sampling, PathSampling) and sampling.spacing != TRAILING:
            yield Refusal(
                "FlowMap walks in few steps, and sampling.spacing=scheduler begins the last of them almost without noise: set "
                "sampling.spacing=trailing"
            )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """With steps and places drawn for all of it, so that they do not depend on how it is split."""
        alike(acting(models), models[TEACHER])
        decisions, generator = paths(batch), models.random("flow map")
        n = len(decisions.length_N)
        step_NK = generator.integers(decisions.length_N.cpu().numpy()[:, None], size=(n, self.draws))
        place_NK3 = generator.random((n, self.draws, 3), dtype="float32")
        facts = {STEP: torch.from_numpy(step_NK), PLACE: torch.from_numpy(place_NK3)}
        return batch.with_columns({name: fact.to(models.device) for name, fact in facts.items()}), {}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        return weighed_alike(minibatch), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, teacher = acting(models), models[TEACHER]
        policy.model.eval()
        place_J3 = batch.facts[PLACE].flatten(0, 1)
        weight_J = (batch.facts["weight"] / self.draws).repeat_interleave(self.draws)
        with torch.no_grad():
            x_JD, from_J, label_J = self.walked(policy, teacher, batch)
            kind_J, share_J = place_J3[:, 1], place_J3[:, 2]
            to_J = torch.where(kind_J < 0.25, from_J, from_J * share_J).where(kind_J < 0.75, 0)
            wanted_JD = self.wanted(policy, teacher, x_JD, from_J, to_J, label_J)
        said_JD = velocity(policy, x_JD, from_J, to_J, label_J)
        missed_J = (said_JD - wanted_JD).square().flatten(1).mean(-1)
        value = (weight_J * missed_J).sum()
        long_J = (from_J - to_J > 0.5).float()
        told = {"flow_map/off": missed_J, "flow_map/long": long_J, "flow_map/off_long": missed_J * long_J}
        figures = {name: float((weight_J * x_J.detach()).sum()) for name, x_J in told.items()}
        yield Loss(of=(POLICY,), value=value, metrics={"loss": float(value.detach()), **figures})

    def walked(
        self, policy: DenoiserPolicy, teacher: DenoiserPolicy, batch: TrainBatch
    ) -> tuple[Float[Tensor, "J ..."], Float[Tensor, " J"], Int[Tensor, " J"]]:
        """(states, their noise, classes asked for), of each path at the drawn places."""
        decisions, step_NK = paths(batch), batch.facts[STEP]
        row_J = torch.arange(len(step_NK), device=step_NK.device).repeat_interleave(self.draws)
        at = (row_J, step_NK.flatten())
        here_J, next_J = decisions.level_NSL[at][:, 1], decisions.level_NSL[at][:, 3]
        to_J = here_J + batch.facts[PLACE].flatten(0, 1)[:, 0] * (next_J - here_J)
        label_J = decisions.label_N[row_J]
        if self.walker == "policy":
            x_JD = decisions.state_NXD[at]
            return x_JD - wide(here_J - to_J, x_JD) * velocity(policy, x_JD, here_J, to_J, label_J), to_J, label_J
        x_JD, here_J = decisions.state_NXD[row_J, 0], decisions.level_NSL[row_J, 0, 1]
        for left in range(self.teacher_steps, 0, -1):
            after_J = here_J + (to_J - here_J) / left
            x_JD = x_JD - wide(here_J - after_J, x_JD) * velocity(teacher, x_JD, here_J, here_J, label_J)
            here_J = after_J
        return x_JD, to_J, label_J

    def wanted(
        self,
        policy: DenoiserPolicy,
        teacher: DenoiserPolicy,
        x_JD: Float[Tensor, "J ..."],
        from_J: Float[Tensor, " J"],
        to_J: Float[Tensor, " J"],
        label_J: Int[Tensor, " J"],
    ) -> Float[Tensor, "J ..."]:
        """u*."""
        span_J = from_J - to_J
        first_J = span_J.clamp(max=1 / self.grid)
        taught_JD = velocity(teacher, x_JD, from_J, from_J, label_J)
        after_JD = x_JD - wide(first_J, x_JD) * taught_JD
        rest_JD = velocity(policy, after_JD, from_J - first_J, to_J, label_J)
        share_J = torch.where(span_J > 0, first_J / span_J.where(span_J > 0, 1), 1)
        return rest_JD + wide(share_J, x_JD) * (taught_JD - rest_JD)


def velocity(
    policy: DenoiserPolicy,
    x_JD: Float[Tensor, "J ..."],
    from_J: Float[Tensor, " J"],
    to_J: Float[Tensor, " J"],
    label_J: Int[Tensor, " J"],
) -> Float[Tensor, "J ..."]:
    """The mean velocity from one noise to another; of a network that is told no span, that where it begins."""
    time_J = from_J * policy.process.scheduler.config.num_train_timesteps
    return policy.found(x_JD, time_J, label_J, span_K=from_J - to_J)
