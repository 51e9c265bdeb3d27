"""Gaussian policies over the noise that a frozen flow turns into actions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import (
    DENSITIES,
    AbstractRealPolicy,
    check_bound,
)
from gimbal.policies.flow import Velocity, on_flow
from gimbal.policies.gaussian import GaussianPolicy, check_log_std


class DecodedPolicy(AbstractRealPolicy):
    """z ~ N(mean(o), exp(log_std)^2 T) is drawn, recorded and learned from, and bound g(o, z) is done: the flow g never moves and leads
    from noise to actions in units of the bound. Without a flow z itself is done.
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        log_std: float,
        flow_steps: int,
        flow_hidden: list[int] | None,
        seed: int,
    ) -> None:
        super().__init__()
        self.config = {"observations": observations, "actions": actions, "hidden": hidden, "bound": bound}
        self.config |= {"log_std": log_std, "flow_steps": flow_steps, "flow_hidden": flow_hidden}
        self.bound, self.flow_steps = bound, flow_steps
        self.chooser = GaussianPolicy(observations, actions, hidden, log_std, seed)
        self.flow = None
        if flow_hidden is not None:
            self.flow = Velocity(observations, actions, tuple(flow_hidden), stable_hash("flow", seed) % 2**63)
            self.flow.requires_grad_(False)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        return self.chooser.draw(observation_BO, noise_BA, temperature_B)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        return self.chooser.assess(observation_KO, action_KA, temperature)

    def done(self, observation_BO: Float[Tensor, "B O"], action_BA: Shaped[Tensor, "B A"]) -> Float[Tensor, "B A"]:
        if self.flow is None:
            return action_BA
        held = next(self.flow.parameters())
        return self.bound * self.flow.end(observation_BO.to(held), action_BA.to(held), self.flow_steps).float()


@dataclass(frozen=True, kw_only=True)
class Decoded(AbstractPolicySpec):
    """A Gaussian policy over the noise of a frozen flow, which turns it into ``actions`` continuous actions in [-``bound``, ``bound``],
    on ``observations`` inputs; or the policy saved in the directory ``model`` (GoRL, arXiv:2512.02581).

    Rollouts hold the noise, and log-probabilities are its: on-policy updates learn as if it were the action. ``flow`` is the directory
    of a policy that a run of idql or expo saved, taken in ``flow_steps`` steps. The first noise is N(0, exp(``log_std``)^2), which is
    what flows begin from if ``log_std`` is 0: then the first policy is the flow.

    - No ``flow``: ``Gaussian``, bit for bit.
    - A flow that leads nowhere (velocity 0): the noise, clipped, in units of the bound.
    - A flow that clones a Gaussian: affine in the noise, so the policy over it is a Gaussian, clipped.

    GoRL goes on in stages: a run without a flow, then in turn a flow that clones what the last run does (``gimbal record``), and a run
    over the noise of that flow. It is cloned from N(0, 1) and not from the noise that was drawn, so that each stage begins where the
    last one ended.

    Published: four stages, flows of 10 steps, PPO clipped at .15 in the first stage and .3 later, noise held near N(0, 1) by 5e-4 and
    then 1e-3 of the squares of its mean and deviation.

    Confidence: verified (the authors' code); ours: KL to the first policy in place of these squares, and a new critic in each stage.
    """

    family: ClassVar[Family] = DENSITIES

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    bound: float = 1.0
    model: str = ""
    log_std: float = 0.0
    flow: str = ""
    flow_steps: int = 10

    def __post_init__(self) -> None:
        check_bound(self.bound)
        check_log_std(self.log_std)
        if self.flow_steps < 1:
            raise ValueError(f"Decoded has flow_steps {self.flow_steps}, which is at least 1")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if whole.run.learns.off_policy:
            yield Refusal(
                f"Decoded records the noise that a flow begins from, and {type(whole.run.learns).__name__} learns from actions: begin "
                "with gorl, or let policy='Steered(...)' choose the noise, as in dsrl"
            )

    def load(self, seed: int = 0) -> DecodedPolicy:
        return on_flow(DecodedPolicy, self, seed, without=None)

    def at(self, directory: Path) -> Decoded:
        return replace(self, model=str(directory))
