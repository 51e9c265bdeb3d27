"""World models that learn from real steps: the loss, their predictions on unseen steps, and planning policies trained so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gimbal.composition import FOLLOWS, Composition, Refusal, Verdict
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.dataflow.replay.transitions import PATH, Transitions, fresh
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.off_policy import AbstractOnDecisions, Explore, counted_of, means, steps_of
from gimbal.policies.diffusion_dynamics import DiffusionDynamics
from gimbal.policies.dynamics import Dynamics, DynamicsNetwork
from gimbal.policies.planned import Planned, PlanningPolicy
from gimbal.policies.worlds import AbstractWorldNetwork
from gimbal.records import TrainBatch

NOISE, LEVEL = "refine/noise", "refine/step"  # facts [N, S, M, T] and [N, S], where the world refines


@dataclass(frozen=True, kw_only=True)
class ModelLearning(AbstractOnDecisions):
    """Trains a planning policy's world by the likelihood of real steps (PETS, arXiv:1805.12114).

    With w = 1 / their number:

        world     sum w sum_m - log p_m(o' - o, r | o, a)

    A world that refines (``world.refine``) adds w 1/2 |e - named|^2 of one random step of each row and each member's own e.

    On own rollouts (``store.path`` = p above 1): the mean of the same over p consecutive recorded steps, of which each member sees the
    first o and then what it said itself, o_m + mean_m, with the recorded actions and the gradient through all of its steps. Its target
    is the change that leads back to the record, so it is paid for where it ends up, not for single steps from where it never is. Where
    the environment is noisy its deviations then hold the noise of the whole path. This is the plain form of training on own rollouts;
    ``WorldDenoising`` has the contrastive form, of diffusion worlds. It is meant for noisy sensors: every o of single steps has their
    noise, of a path only the first. Whether worlds then hold longer is undecided (claims, ``drift.py``); where sensors are exact,
    single steps are all that there is to learn.

    Held-out error: on newly arrived real steps, before training on them or updating the world's statistics. ``gap`` is the predicted
    minus the actual sum of rewards over a fresh row of real steps, by a member's own observations and the real actions; the mean over
    members and rows.

    - ``store.path`` = 1: single steps. Paths of which only one step is known: the same.
    - A Gaussian linear environment: the loss has its minimum at the environment's own mean and deviation.

    Published: 5 members of 3 x 500 (Pendulum: fewer suffice), CEM, retrained after each episode. Ours: trained as steps arrive.
    """

    explore: Explore = Explore(first=1.0, last=0.15, over=200)

    def effects(self) -> frozenset[str]:
        return frozenset({FOLLOWS})

    def explores(self) -> Explore:
        return self.explore

    def models(self) -> dict[str, ModelSpec]:
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Planned):
            yield Refusal(
                f"ModelLearning trains the world of a planning policy, but {type(whole.run.policy).__name__} has none: set "
                "policy='Planned(world=Dynamics(observations=..., actions=...), bound=...)'"
            )
        world = policy.world if isinstance(policy := whole.run.policy, Planned) else None
        if isinstance(world, DiffusionDynamics):
            yield Refusal(
                "ModelLearning trains by the likelihood of real steps, and a diffusion world has none: set "
                "update='WorldDenoising()', or policy.world='Dynamics(observations=..., actions=...)'"
            )
        yield from single_steps(self, whole, world if isinstance(world, Dynamics) else None)

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        told = foreseen(_world(models), batch)
        batch, more = super().prepare(models, batch)
        return batch, told | more

    def noises(self, models: Models, batch: TrainBatch) -> Mapping[str, Tensor]:
        return refining(models, _world(models).spec, batch)

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        weight_K, (loss_K, told) = counted_of(batch)(batch.facts["weight"]), fitting(_world(models), batch)
        yield Loss(of=(POLICY,), value=(weight_K * loss_K).sum(), metrics=means(weight_K, {"loss": loss_K, **told}))


def _world(models: Models) -> DynamicsNetwork:
    policy = models.policy
    if not isinstance(policy, PlanningPolicy) or not isinstance(policy.world, DynamicsNetwork):
        raise ValueError(
            f"ModelLearning trains the world of a planning policy, but {type(policy).__name__} has none with a likelihood: set "
            "policy='Planned(world=Dynamics(observations=..., actions=...), bound=...)'"
        )
    return policy.world


def single_steps(update: object, whole: Composition, world: Dynamics | None = None) -> Iterator[Verdict]:
    """Refuses a store from which a world cannot learn."""
    store, name = whole.run.store, type(update).__name__
    if not isinstance(store, Transitions | Recordings):
        yield Refusal(
            f"{name} samples real steps from a buffer, but {type(store).__name__} is not one: set store='Transitions()'"
        )
    elif isinstance(store, Transitions) and store.n > 1:
        yield Refusal(f"{name} learns what follows a single step, but store.n is {store.n}: set store.n=1")
    elif store.path > 1 and world is not None and world.refine:
        yield Refusal(
            "world.refine trains on single steps, and store.path is more than one: set store.path=1, or world.refine=()"
        )


def fresh_steps(batch: TrainBatch) -> TrainBatch | None:
    """``fresh``, of single steps."""
    if batch.shape[1] != 1:
        raise ValueError(
            f"a world learns from single steps, and these rows have up to {batch.shape[1]}: draw them from Transitions()"
        )
    return fresh(batch)


def fitting(world: DynamicsNetwork, batch: TrainBatch) -> tuple[Float[Tensor, " K"], dict[str, Tensor]]:
    """The world's loss of each row, and what is told of it."""
    loss_K = surprise(world, batch)
    told = {"world/loss": loss_K}
    if NOISE in batch.facts:
        told["world/refinement"] = named_K = refinement(world, batch)
        loss_K = loss_K + named_K
    if PATH in batch.facts:
        told["world/path"] = (~counted_of(batch)(batch.facts[PATH])[..., 0].isnan()).sum(-1)
    return loss_K, told


def surprise(world: DynamicsNetwork, batch: TrainBatch) -> Float[Tensor, " K"]:
    """- log p of each real step, summed over the members; with paths, the mean over the steps of each, on own observations."""
    steps, counted = steps_of(batch), counted_of(batch)
    seen_KO, action_KA = counted(steps.observation_NSO), counted(steps.action_NSA)
    if PATH not in batch.facts:
        reward_K, ended_K = counted(batch.column("reward_NS", world)), counted(steps.ended_NS)
        one = world.unrefined(seen_KO, action_KA)
        return world.surprise(one, counted(steps.next_NSO)[:, None], reward_K[:, None], ended_K[:, None]).sum(0)[:, 0]
    path_KpF = counted(batch.facts[PATH])
    known_Kp = ~path_KpF[..., 0].isnan()
    sizes = [action_KA.shape[-1], seen_KO.shape[-1], 1, 1]
    action_KpA, next_KpO, reward_Kp1, ended_Kp1 = path_KpF.nan_to_num().split(sizes, -1)
    own = world.follow(seen_KO, action_KpA)
    nll_Kp = world.surprise(own, next_KpO, reward_Kp1[..., 0], ended_Kp1[..., 0] > 0).sum(0)
    return torch.where(known_Kp, nll_Kp, 0).sum(-1) / known_Kp.sum(-1)


def refining(models: Models, world: Dynamics, batch: TrainBatch) -> dict[str, Tensor]:
    """For each row the noise of a step of refinement, of each member its own, and which step."""
    if not (steps := len(world.refine)):
        return {}
    random, shape = models.random("refine"), (*batch.shape, world.members, world.observations + 1)
    noise_NSMT = torch.from_numpy(random.standard_normal(shape, dtype="float32"))
    return {NOISE: noise_NSMT, LEVEL: torch.from_numpy(random.integers(steps, size=batch.shape))}


def refinement(world: DynamicsNetwork, batch: TrainBatch) -> Float[Tensor, " K"]:
    """How far off the members name the noise of one step of refinement, summed over them."""
    steps, counted = steps_of(batch), counted_of(batch)
    seen_KO, reward_K1 = counted(steps.observation_NSO), counted(batch.column("reward_NS", world))[:, None]
    target_KT = torch.cat([counted(steps.next_NSO) - seen_KO, reward_K1], -1)
    noise_MKT = counted(batch.facts[NOISE]).transpose(0, 1)
    return world.refinement(seen_KO, counted(steps.action_NSA), target_KT, noise_MKT, counted(batch.facts[LEVEL])).sum(
        0
    )


def foreseen(world: AbstractWorldNetwork, batch: TrainBatch) -> Metrics:
    """What the world says of real steps that it has not seen; from then on they count in its units."""
    if (new := fresh_steps(batch)) is None:
        return {}
    steps, reward_K = steps_of(new), new.column("reward_NS", world)[:, 0]
    if world.spec.ends == "never" and bool(steps.ended_NS.any()):
        raise ValueError(
            "the environment ended an episode, but world.ends is never, so imagined steps would go on after it: start again with "
            "world.ends=learned, or with world.ends=file.py:function if you know where it ends"
        )
    seen_KO, action_KA, next_KO = steps.observation_NSO[:, 0], steps.action_NSA[:, 0], steps.next_NSO[:, 0]
    told: Metrics = {}
    if float(world.targets.count):
        with torch.no_grad():
            one = world.follow(seen_KO, action_KA[:, None])
            if isinstance(world, DynamicsNetwork):
                nll_MKS = world.surprise(one, next_KO[:, None], reward_K[:, None], steps.ended_NS)
                told["world/nll"] = float(nll_MKS.mean())
            error_KO = (one.next_MNSO[:, :, 0].mean(0) - next_KO) / world.spread_T[:-1]
            length_R = lengths(seen_KO, next_KO, steps.ended_NS[:, 0])
            rows = [x.split(length_R) for x in (action_KA, reward_K)]
            action_RSA, reward_RS = (nn.utils.rnn.pad_sequence(list(x), batch_first=True) for x in rows)
            first_RO = torch.stack([x[0] for x in seen_KO.split(length_R)])
            there_RS = (torch.arange(max(length_R)) < torch.tensor(length_R)[:, None]).to(reward_RS.device)
            imagined_MR = (world.follow(first_RO, action_RSA).reward_MNS * there_RS).sum(-1)
        told |= {
            "world/error": float(error_KO.square().mean().sqrt()),
            "world/gap": float((imagined_MR - reward_RS.sum(-1)).mean()),
            "world/gap_steps": sum(length_R) / len(length_R),
        }
    world.observe(seen_KO, action_KA, next_KO, reward_K)
    return told


def lengths(seen_KO: Tensor, next_KO: Tensor, ended_K: Bool[Tensor, " K"]) -> list[int]:
    """Of the rows that single steps, in their order, were cut from: a step goes on where what came of the one before was seen."""
    goes_on_K = (seen_KO[1:] == next_KO[:-1]).all(-1) & ~ended_K[:-1]
    first = [0, *((~goes_on_K).nonzero()[:, 0] + 1).tolist(), len(seen_KO)]
    return [after - before for before, after in pairwise(first)]
