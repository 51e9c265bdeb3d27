"""Policies that plan: their weights are a learned world, and they act by what earns most in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.clipped import AbstractClippedPolicy
from gimbal.policies.control import DENSITIES, check_bound, read_config, read_weights, sizes_of
from gimbal.policies.diffusion_dynamics import DiffusionDynamics
from gimbal.policies.dynamics import Dynamics
from gimbal.policies.planners import MPPI, AbstractPlanner
from gimbal.policies.worlds import AbstractWorld, AbstractWorldNetwork


class PlanningPolicy(AbstractClippedPolicy):
    """mode(o) = bound plan(o), plan(o) being the planner's first action, by the returns that its world predicts."""

    proposals_IPJA: Tensor

    def __init__(self, world: AbstractWorld, planner: AbstractPlanner, bound: float, seed: int) -> None:
        super().__init__(bound)
        self.config = {**sizes_of(world), "bound": bound}
        self.planner = planner
        self.world = world.load(seed)
        shape = (planner.iterations, planner.candidates, planner.knots, world.actions)
        # The same whatever the run's seed, and not saved: they are the planner's, not the weights'.
        drawn_IPJA = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        self.register_buffer("proposals_IPJA", drawn_IPJA, persistent=False)

    @torch.no_grad()
    def mode(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        def returns(share_BPHA: Tensor) -> Tensor:
            batch, candidates = share_BPHA.shape[:2]
            seen_KO = observation_BO.to(self.proposals_IPJA.dtype).repeat_interleave(candidates, 0)
            return self.world.returns(seen_KO, self.bound * share_BPHA.flatten(0, 1)).reshape(batch, candidates)

        return self.bound * self.planner(returns, len(observation_BO), self.proposals_IPJA).float()


@dataclass(frozen=True, kw_only=True)
class Planned(AbstractPolicySpec):
    """A policy that plans in ``world`` by ``planner``, with actions in [-``bound``, ``bound``], or with the weights saved in the
    directory ``model``. Only the world learns; the planner has no parameters.
    """

    family: ClassVar[Family] = DENSITIES

    world: AbstractWorld
    planner: AbstractPlanner = MPPI()
    bound: float = 1.0
    model: str = ""

    def __post_init__(self) -> None:
        check_bound(self.bound)
        if isinstance(self.world, Dynamics) and self.world.choices:
            raise ValueError("Planned plans vectors of reals, and policy.world.choices is true: leave it false")

    def load(self, seed: int = 0) -> PlanningPolicy:
        policy = PlanningPolicy(self.world, self.planner, self.bound, seed)
        if self.model:
            saved = read_config(self.model)
            if saved != policy.config:
                raise ValueError(f"{self.model} was saved with {saved}, and policy has {policy.config}: set the same")
            read_weights(policy, self.model)
        return policy.eval()

    def at(self, directory: Path) -> Planned:
        return replace(self, model=str(directory))


def world_in(directory: str) -> tuple[AbstractWorldNetwork, float]:
    """The world of the planning policy that is saved there, and the largest action; ValueError where none is."""
    found = read_config(directory, "a world")
    held: dict[str, Any] = {name: tuple(x) if isinstance(x, list) else x for name, x in found.items()}
    bound = held.pop("bound", None)
    try:
        world = (DiffusionDynamics if "evaluations" in held else Dynamics)(**held).load(0)
    except TypeError as error:  # fields that no world has
        raise ValueError(
            f"{directory} holds no world: name the model of a run of world, pets or own_rollouts, as runs/RUN/model"
        ) from error
    read_weights(world, directory, "world.")
    return world.eval().requires_grad_(False), float(bound)
