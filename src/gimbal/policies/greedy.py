"""Policies that are values of choices: the best one, or the better ones more often, or now and then any."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.categorical import choose, judge
from gimbal.policies.control import STEPS, AbstractChoicePolicy, made, output_of, relu_mlp


class GreedyPolicy(AbstractChoicePolicy):
    """The choice with the largest Q(o, .) with probability 1 - ``explore``, else one of the V choices uniformly. With a
    ``value_temperature`` above 0 softmax(Q / value_temperature) stands in place of the largest.

    ``explore`` is a buffer that the update moves; it is sent with the weights. No gradient of a log-probability reaches the weights.
    """

    explore: Tensor

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        normalize: bool,
        seed: int,
        scale: float = 1.0,
        value_temperature: float = 0.0,
    ) -> None:
        super().__init__()
        self.config = {
            "observations": observations,
            "actions": actions,
            "hidden": hidden,
            "normalize": normalize,
            "scale": scale,
            "value_temperature": value_temperature,
        }
        self.scale, self.value_temperature = scale, value_temperature
        self.normalizes(observations, normalize)
        self.net = relu_mlp([observations, *hidden, actions], seed)
        self.register_buffer("explore", torch.ones(()))

    def values(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B V"]:
        """Q of every choice."""
        return self.scale * output_of(self.net, self.normal(observation_BO))

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B A"], Float[Tensor, " B"]]:
        if self.value_temperature:
            values_BV = self.values(observation_BO)
            still_B1 = (temperature_B == 0)[:, None]  # the best choice, also where all others are explored
            return choose(torch.where(still_B1, values_BV, self._soft(values_BV)), noise_BA, temperature_B)
        best_B1, explore_B1 = (
            self.values(observation_BO).argmax(-1, keepdim=True),
            self._explore(temperature_B)[:, None],
        )
        choices = self.config["actions"]
        # One uniform number says both: below ``explore``, the place in which it lies there is uniform again.
        any_B1 = (noise_BA / explore_B1 * choices).nan_to_num().long().clamp(0, choices - 1)
        action_B1 = torch.where(noise_BA < explore_B1, any_B1, best_B1)
        logprob_B = _logprob(action_B1 == best_B1, explore_B1, choices)[:, 0]
        return action_B1, torch.where(temperature_B > 0, logprob_B, 0)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        if self.value_temperature:
            return judge(self._soft(self.values(observation_KO)), action_KA, temperature)
        best_K1, choices = self.values(observation_KO).argmax(-1, keepdim=True), self.config["actions"]
        explore = self._explore(torch.tensor([temperature]))[:, None]
        yes, no = (_logprob(torch.tensor([[hit]], device=explore.device), explore, choices) for hit in (True, False))
        entropy = -yes * yes.exp() - (choices - 1) * (no * no.exp()).nan_to_num()
        return _logprob(action_KA == best_K1, explore, choices)[:, 0], entropy[0].expand(len(action_KA))

    @torch.no_grad()
    def _soft(self, values_BV: Float[Tensor, "B V"]) -> Float[Tensor, "B V"]:
        """Log-probabilities of the choices at a value_temperature above 0."""
        likely_BV = (values_BV / self.value_temperature).softmax(-1)
        mixed_BV = self.explore / self.config["actions"] + (1 - self.explore) * likely_BV
        return mixed_BV.clamp_min(torch.finfo(mixed_BV.dtype).tiny).log()  # else 0 log 0 in the entropy

    def _explore(self, temperature_B: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        """At a temperature T the probabilities are p^(1/T), normalised: it explores more, or less, in the same form."""
        choices = self.config["actions"]
        share = self.explore.float() / choices
        power_B = 1 / temperature_B.to(share.device)
        best_B, other_B = (1 - (choices - 1) * share) ** power_B, share**power_B
        mixed_B = choices * other_B / (best_B + (choices - 1) * other_B)
        return torch.where(power_B.isfinite(), mixed_B, 0.0)


def _logprob(is_best: Tensor, explore: Tensor, choices: int) -> Tensor:
    return (explore / choices + is_best * (1 - explore)).log()


@dataclass(frozen=True, kw_only=True)
class Greedy(AbstractPolicySpec):
    """The values of ``actions`` choices on ``observations`` inputs as a policy, or the one saved in the directory ``model``.
    ``normalize``: scale observations by their own spread. ``scale`` is the value of an output of 1: where values reach 100, a
    network whose outputs must be that large is slow to learn a sharp drop, such as the end of an episode. ``value_temperature``: draw
    by softmax(Q / value_temperature), in the units of returns, in place of the largest (0)."""

    family: ClassVar[Family] = STEPS

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    normalize: bool = False
    scale: float = 1.0
    value_temperature: float = 0.0
    model: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.value_temperature < math.inf:
            raise ValueError(
                f"policy.value_temperature is {self.value_temperature}; it is a number of 0 or above, in the units of returns"
            )
        if not 0 < self.scale < math.inf:
            raise ValueError(
                f"policy.scale is {self.scale}; it is the value of an output of 1, a number above 0: the size of a typical return"
            )

    def load(self, seed: int = 0) -> GreedyPolicy:
        return made(GreedyPolicy, self, seed)

    def at(self, directory: Path) -> Greedy:
        return replace(self, model=str(directory))
