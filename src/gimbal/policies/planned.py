"""Policies that plan: their weights are a learned world, and they act by what earns most in it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import DENSITIES, AbstractControlPolicy, read_config, read_weights
from gimbal.policies.deterministic import clipped_logprob
from gimbal.policies.dynamics import Dynamics
from gimbal.policies.planners import MPPI, AbstractPlanner


class PlanningPolicy(AbstractControlPolicy):
    """a = clip(plan(o) + bound explore e, -bound, bound),  e ~ N(0, 1) in each of the A dimensions.

    plan(o) is the planner's first action, by the returns that the world's members predict. ``explore`` is a buffer that the update
    moves; it is sent with the weights. Log-probabilities are those of ``DeterministicPolicy``, whose mode this is.
    """

    provides: ClassVar[frozenset[str]] = frozenset()
    explore: Tensor
    proposals_IPJA: Tensor

    def __init__(self, world: Dynamics, planner: AbstractPlanner, bound: float, seed: int) -> None:
        super().__init__()
        self.config = {"observations": world.observations, "actions": world.actions, "bound": bound}
        self.planner, self.bound, self.actions = planner, bound, world.actions
        self.world = world.load(seed)
        shape = (planner.iterations, planner.candidates, planner.knots, world.actions)
        # The same whatever the run's seed, and not saved: they are the planner's, not the weights'.
        drawn_IPJA = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        self.register_buffer("proposals_IPJA", drawn_IPJA, persistent=False)
        self.register_buffer("explore", torch.ones(()))

    @property
    def interface(self) -> str:
        return f"{self.config['observations']} observations, {self.actions} real actions"

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S A"]:
        return torch.from_numpy(generator.standard_normal((steps, self.actions), dtype=np.float32))

    @torch.no_grad()
    def mode(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        def returns(share_BPHA: Tensor) -> Tensor:
            batch, candidates = share_BPHA.shape[:2]
            seen_KO = observation_BO.to(self.proposals_IPJA.dtype).repeat_interleave(candidates, 0)
            return self.world.returns(seen_KO, self.bound * share_BPHA.flatten(0, 1)).reshape(batch, candidates)

        return self.bound * self.planner(returns, len(observation_BO), self.proposals_IPJA).float()

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        mode_BA, log_std_B1 = self.mode(observation_BO), self._log_std(temperature_B[:, None])
        action_BA = (mode_BA + log_std_B1.exp() * noise_BA).clamp(-self.bound, self.bound)
        logprob_B = clipped_logprob(action_BA, mode_BA, log_std_B1, self.bound)
        return action_BA, torch.where(temperature_B > 0, logprob_B, 0)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        log_std = self._log_std(torch.tensor(temperature))
        logprob_K = clipped_logprob(action_KA, self.mode(observation_KO), log_std, self.bound)
        return logprob_K, torch.full_like(logprob_K, math.nan)  # of an entropy, which it does not provide

    def _log_std(self, temperature: Tensor) -> Tensor:
        return (self.bound * self.explore.float()).log() + 0.5 * temperature.to(self.explore.device).log()


@dataclass(frozen=True, kw_only=True)
class Planned(AbstractPolicySpec):
    """A policy that plans in ``world`` by ``planner``, with actions in [-``bound``, ``bound``], or with the weights saved in the
    directory ``model``. Only the world learns; the planner has no parameters.
    """

    family: ClassVar[Family] = DENSITIES

    world: Dynamics
    planner: AbstractPlanner = MPPI()
    bound: float = 1.0
    model: str = ""

    def __post_init__(self) -> None:
        if not 0 < self.bound < math.inf:
            raise ValueError(f"policy.bound is {self.bound}; it is the largest action, a number above 0")
        if self.world.choices:
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
