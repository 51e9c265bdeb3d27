"""Two policies that act at once: one for the task, and one that disturbs it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.ops import stable_hash
from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import DENSITIES, AbstractRealPolicy, made
from gimbal.policies.gaussian import GaussianPolicy, check_log_std


class DisturbedPolicy(AbstractRealPolicy):
    """(actor, disturber): two Gaussian policies of the same observation, apart in all weights. Of an action of A numbers the last
    ``disturbances`` are the disturber's. log p is the sum of theirs."""

    def __init__(
        self,
        observations: int,
        actions: int,
        disturbances: int,
        hidden: list[int],
        log_std: float,
        push_log_std: float,
        seed: int,
    ) -> None:
        super().__init__()
        if not 0 < disturbances < actions:
            raise ValueError(
                f"an action has {actions} numbers here, of which policy.disturbances={disturbances} are a disturbance; it is at "
                "least 1, and leaves one at least to the actor"
            )
        self.config = {
            "observations": observations,
            "actions": actions,
            "disturbances": disturbances,
            "hidden": hidden,
            "log_std": log_std,
            "push_log_std": push_log_std,
        }
        self.disturbances = disturbances
        self.actor = GaussianPolicy(observations, actions - disturbances, hidden, log_std, seed)
        own = stable_hash("disturber", seed) % 2**63
        self.disturber = GaussianPolicy(observations, disturbances, hidden, push_log_std, own)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        acts, pushes = (
            policy.draw(observation_BO, noise_BX, temperature_B)
            for policy, noise_BX in zip((self.actor, self.disturber), self.halves(noise_BA), strict=True)
        )
        return torch.cat([acts[0], pushes[0]], -1), acts[1] + pushes[1]

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        acts, pushes = self.each(observation_KO, action_KA, temperature)
        return acts[0] + pushes[0], acts[1] + pushes[1]

    def each(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Log-probabilities [K] and entropies [K] of the actor, and those of the disturber."""
        act_KA, push_KA = self.halves(action_KA)
        return (
            self.actor.assess(observation_KO, act_KA, temperature),
            self.disturber.assess(observation_KO, push_KA, temperature),
        )

    def halves(self, x_XA: Shaped[Tensor, "*X A"]) -> tuple[Shaped[Tensor, "*X B"], Shaped[Tensor, "*X D"]]:
        """Of actions, the actor's numbers and the disturber's."""
        own = self.actions - self.disturbances
        return x_XA[..., :own], x_XA[..., own:]


@dataclass(frozen=True, kw_only=True)
class Disturbed(AbstractPolicySpec):
    """A Gaussian policy on ``observations`` inputs, and another that disturbs it: of the environment's ``actions`` numbers the last
    ``disturbances``, each from -1 to 1. Or those saved in the directory ``model``.

    ``log_std`` and ``push_log_std`` are the logarithms of the initial standard deviations of actions and of disturbances.
    """

    family: ClassVar[Family] = DENSITIES

    observations: int
    actions: int
    disturbances: int = 1
    hidden: tuple[int, ...] = (64, 64)
    log_std: float = 0.0
    push_log_std: float = -0.7
    model: str = ""

    def __post_init__(self) -> None:
        check_log_std(self.log_std)
        check_log_std(self.push_log_std, "push_log_std")

    def load(self, seed: int = 0) -> DisturbedPolicy:
        return made(DisturbedPolicy, self, seed)

    def at(self, directory: Path) -> Disturbed:
        return replace(self, model=str(directory))
