"""On-policy distillation of denoising policies: teachers say where they would step from the states of the policy's own paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.environments.conditions import Conditions, listed
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.forward_process import acting, paths
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy, alike
from gimbal.policies.paths import ODE, Paths
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Teacher:
    """A frozen model, and the classes of tasks that it teaches: those of ``labels``, or all where there are none."""

    policy: Denoiser
    labels: tuple[int, ...] = ()

    def rows(self, decisions: Paths) -> Bool[Tensor, " N"]:
        """Which paths it teaches."""
        label_N = decisions.label_N
        return torch.isin(label_N, label_N.new_tensor(self.labels)) if self.labels else torch.ones_like(label_N).bool()


@dataclass(frozen=True, kw_only=True)
class PathDistillation(AbstractUpdate):
    """Distils teachers into the policy along its own paths, by the KL of each step in closed form (DiffusionOPD, arXiv:2605.15055).

    At each recorded state, with the mean and deviation of the next one by the policy and by each teacher e of its task:

        loss = mean over steps of sum_e c |mean - mean_e|^2 / (2 std^2),   c = 1, or 1 / D where sampling.reduce is mean

    This is KL(policy || teacher) of that step, since both have one sampler and one std; states are constants. A step of the ODE has no
    std: there it is c |mean - mean_e|^2 / 2, over all steps. No reward is read, and no log-probability: states of any age will do.

    - policy = teacher: no loss, no gradient.
    - the gradient is the mean of that by the score function, E[(log p - log p_e) grad log p] of the next state.
    - paths of one ODE step of a flow: regression of velocities.
    - several teachers of a task: towards the mean of theirs.

    Each teacher is a ``Denoiser``, whose guidance is its own: with ``guidance`` 3 for the teacher and 1 for the policy, one evaluation
    of the network learns to do what takes the teacher two. Published: the ODE in 10 steps, teachers trained by RL on a task each. The
    released loss divides by 2 g^2 in place of 2 std^2 = 2 g^2 dt.

    Confidence: verified.
    """

    teachers: tuple[Teacher, ...]

    def __post_init__(self) -> None:
        if not self.teachers:
            raise ValueError(
                'PathDistillation.teachers is empty: name one, teachers=[Teacher(policy=Denoiser(model="DIRECTORY"))]'
            )

    def models(self) -> dict[str, ModelSpec]:
        taught = {_name(place): ModelSpec(load=teacher.policy.load) for place, teacher in enumerate(self.teachers)}
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy()), **taught}

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not isinstance(whole.run.policy, Denoiser):
            yield Refusal("PathDistillation compares the steps of networks that denoise: policy='Denoiser()'")
        for place, teacher in enumerate(self.teachers):
            if why := teacher.policy.unknown(teacher.labels):
                yield Refusal(f"update.teachers.{place}.labels names {why}: leave it out")
        taught = set[int]().union(*(teacher.labels for teacher in self.teachers))
        if not all(teacher.labels for teacher in self.teachers) or not isinstance(tasks := whole.run.tasks, Conditions):
            return
        if not tasks.labels:
            yield Refusal(
                f"tasks asks for no class, and the teachers of PathDistillation teach only {sorted(taught)}: set tasks.labels="
                f"{listed(taught)}, or leave the labels of one in update.teachers out"
            )
        elif untaught := sorted(set(tasks.labels) - taught):
            yield Refusal(
                f"tasks asks for class {untaught[0]}, which has no teacher in update.teachers: set tasks.labels={listed(taught)}, add "
                f"{untaught[0]} to the labels of a teacher, or leave its labels out"
            )

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        decisions = paths(batch)
        for place in range(len(self.teachers)):
            alike(acting(models), models[_name(place)])
        taught_N = torch.stack([teacher.rows(decisions) for teacher in self.teachers]).any(0)
        if not bool(taught_N.all()):
            label = int(decisions.label_N[~taught_N][0])
            raise ValueError(
                f"a path of class {label} has no teacher: add {label} to the labels of one in update.teachers, or leave its labels out"
            )
        return batch, {}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """``weight``: one over the compared steps of the minibatch."""
        steps_N = compared(paths(minibatch)).sum(-1)
        return minibatch.with_columns({"weight": (1 / steps_N.sum().clamp(min=1)).expand(len(steps_N))}), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, decisions = acting(models), paths(batch)
        row_K, step_K = compared(decisions).nonzero(as_tuple=True)
        mean_KD, std_K = stepped(policy, decisions, row_K, step_K)
        weight_K, scale_K = batch.facts["weight"][row_K], decisions.scale / (2 * std_K.detach().square())
        value, told = mean_KD.sum() * 0, {}
        for place, teacher in enumerate(self.teachers):
            own = teacher.rows(decisions)[row_K].nonzero()[:, 0]
            if not len(own):
                continue
            with torch.no_grad():
                wanted_KD, _ = stepped(models[_name(place)], decisions, row_K[own], step_K[own])
            apart_K = (mean_KD[own] - wanted_KD).square().flatten(1).sum(-1)
            part = (weight_K[own] * scale_K[own] * apart_K).sum()
            value, told = value + part, told | {f"distil/{_name(place)}": float(part.detach())}
        yield Loss(of=(POLICY,), value=value, metrics={"loss": float(value.detach()), **told})


def compared(decisions: Paths) -> Bool[Tensor, "N S"]:
    """The sampled steps; of the ODE all."""
    if decisions.sampler != ODE:
        return decisions.drawn_NS
    step_S = torch.arange(decisions.shape[1], device=decisions.length_N.device)
    return step_S < decisions.length_N[:, None]


def stepped(
    policy: DenoiserPolicy, decisions: Paths, row_K: Tensor, step_K: Tensor
) -> tuple[Float[Tensor, "K ..."], Float[Tensor, " K"]]:
    """Mean and deviation of the states that follow these recorded ones; 1 of the ODE, which has none."""
    at = (row_K, step_K)
    mean_KD, std_K = policy.step(
        decisions.state_NXD[at],
        decisions.level_NSL[at],
        decisions.time_NS[at],
        decisions.amplitude_NS[at],
        decisions.label_N[row_K],
        decisions.sampler,
    )
    return mean_KD, torch.ones_like(std_K) if decisions.sampler == ODE else std_K


def _name(place: int) -> str:
    return f"teacher_{place}"
