"""Policies that choose the noise which a frozen flow turns into an action: a vector of real actions between bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import (
    NO_DENSITY,
    AbstractBoundedSpec,
    without_density,
)
from gimbal.policies.flow import Velocity, on_flow
from gimbal.policies.implicit import AbstractImplicitPolicy
from gimbal.policies.squashed import SquashedGaussianPolicy


class SteeredPolicy(AbstractImplicitPolicy):
    """a = bound g(o, w),  w = ``reach`` tanh(u),  u ~ N(mean(o), std(o)^2), where g leads from noise w to actions and never moves.

    At a temperature T the variance of u is T times as large; 0 is g of the mode. It has no density in closed form; what stands for one
    is around bound g(o, mode).
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        normalize: bool,
        reach: float,
        flow_steps: int,
        flow_hidden: list[int],
        seed: int,
    ) -> None:
        super().__init__()
        self.bounded(observations, actions, hidden, bound, normalize)
        self.config |= {"reach": reach, "flow_steps": flow_steps, "flow_hidden": flow_hidden}
        self.flow_steps = flow_steps
        self.flow = Velocity(observations, actions, tuple(flow_hidden), stable_hash("flow", seed) % 2**63)
        self.flow.requires_grad_(False)
        self.chooser = SquashedGaussianPolicy(observations, actions, hidden, reach, seed)

    def act(self, observation_KO: Float[Tensor, "K O"], chosen_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K A"]:
        """Where the flow leads from this noise. It sees observations as they are: those that it was trained on."""
        kind = next(self.flow.parameters()).dtype
        return self.bound * self.flow.end(observation_KO.to(kind), chosen_KA.to(kind), self.flow_steps).float()

    def choose(
        self, observation_KO: Float[Tensor, "K O"], noise_KA: Float[Tensor, "K A"]
    ) -> tuple[Float[Tensor, "K A"], Float[Tensor, " K"]]:
        """Noise for the flow, with gradient, and its log-density in units of ``reach``."""
        chosen_KA, logprob_K = self.chooser.sample(self.normal(observation_KO), noise_KA)
        return chosen_KA, logprob_K + self.actions * math.log(self.chooser.bound)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        chosen_BA, _ = self.chooser.draw(self.normal(observation_BO), noise_BA, temperature_B)
        return self.told(observation_BO, self.act(observation_BO, chosen_BA), temperature_B)

    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        still_K = observation_KO.new_zeros(len(observation_KO))
        still_KA = still_K[:, None].expand(-1, self.actions)
        return self.act(observation_KO, self.chooser.draw(self.normal(observation_KO), still_KA, still_K)[0])


@dataclass(frozen=True, kw_only=True)
class Steered(AbstractBoundedSpec):
    """Chooses the noise, within ``reach``, that a frozen flow turns into ``actions`` continuous actions in [-``bound``, ``bound``], on
    ``observations`` inputs; or the policy saved in the directory ``model``.

    ``flow`` is the directory of a policy that a run of idql or expo saved: its flow is taken, in ``flow_steps`` steps. Without one the
    flow is not trained, and nearly the identity. ``normalize``: what chooses sees observations in units of their own spread.
    """

    family: ClassVar[Family] = NO_DENSITY

    flow: str = ""
    flow_steps: int = 10
    reach: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.flow_steps < 1 or not 0 < self.reach < math.inf:
            raise ValueError(
                f"Steered has flow_steps {self.flow_steps}, which is at least 1, and reach {self.reach}, the largest noise, above 0"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield from without_density(self, whole)
        if not self.flow and not self.model:
            yield Advice(
                "policy.flow names no flow, so that one without training is steered: policy.flow=runs/RUN/model, of a run of idql",
                always=True,
            )

    def load(self, seed: int = 0) -> SteeredPolicy:
        return on_flow(SteeredPolicy, self, seed, without=list(self.hidden))
