"""A family of Gaussian policies, one for each balance between value and data, and a model that picks the balance by state."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import DENSITIES, AbstractBoundedSpec, AbstractRealPolicy, made, relu_mlp
from gimbal.policies.gaussian import log_density
from gimbal.policies.squashed import LEAST_LOG_STD, SquashedGaussianPolicy

WAVES = 3  # pairs of a sine and a cosine by which the family sees a balance
SLOWEST = 10_000.0  # their base: the n-th pair goes round once in 2 pi SLOWEST^(n / WAVES)


class BalancedPolicy(AbstractRealPolicy):
    """a ~ N(bound tanh(f(o, e(beta))), exp(log_std)^2 T), where beta is ``low`` + (``high`` - ``low``) (u + 1) / 2 and u = tanh(g(o))
    the mode of a squashed Gaussian over balances. Actions are recorded as sampled; the environment clips them to its range."""

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        normalize: bool,
        low: float,
        high: float,
        seed: int,
    ) -> None:
        super().__init__()
        self.bounded(observations, actions, hidden, bound, normalize)
        self.config |= {"low": low, "high": high}
        self.low, self.high = low, high
        self.mean = relu_mlp([observations + 2 * WAVES, *hidden, actions], seed)
        self.log_std_A = nn.Parameter(torch.full((actions,), math.log(bound)))
        self.balance = SquashedGaussianPolicy(observations, 1, hidden, 1.0, stable_hash("balance", seed) % 2**63)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        mean_BA = self.mode(observation_BO, self.picked(observation_BO))
        log_std_BA = (self._log_std_A + 0.5 * temperature_B[:, None].log()).expand_as(mean_BA)
        action_BA = mean_BA + log_std_BA.exp() * noise_BA
        return action_BA, torch.where(temperature_B > 0, log_density(action_BA, mean_BA, log_std_BA), 0)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        logprob_K = self.density(observation_KO, self.picked(observation_KO), action_KA, temperature)
        entropy = (self._log_std_A + 0.5 * (math.log(temperature) + math.log(2 * math.pi * math.e))).sum()
        return logprob_K, entropy.expand_as(logprob_K)

    def density(
        self,
        observation_KO: Float[Tensor, "K O"],
        balance_K1: Float[Tensor, "K 1"],
        action_KA: Shaped[Tensor, "K A"],
        temperature: float = 1.0,
    ) -> Float[Tensor, " K"]:
        """log pi(a|o, beta)."""
        mean_KA = self.mode(observation_KO, balance_K1)
        return log_density(action_KA, mean_KA, (self._log_std_A + 0.5 * math.log(temperature)).expand_as(mean_KA))

    def mode(
        self, observation_KO: Float[Tensor, "K O"], balance_K1: Float[Tensor, "K 1"], frozen: bool = False
    ) -> Float[Tensor, "K A"]:
        """The mean action at these balances. ``frozen``: its gradient reaches the balance, and no weight of the family."""
        both_KI = torch.cat([self.normal(observation_KO), waves(balance_K1)], -1).to(self.log_std_A.dtype)
        if not frozen:
            return self.bound * self.mean(both_KI).float().tanh()
        weights = {name: weight.detach() for name, weight in self.mean.named_parameters()}
        return self.bound * torch.func.functional_call(self.mean, weights, (both_KI,)).float().tanh()

    def sampled(
        self, observation_KO: Float[Tensor, "K O"], noise_K1: Float[Tensor, "K 1"]
    ) -> tuple[Float[Tensor, "K 1"], Float[Tensor, " K"]]:
        """Balances that the balance model draws, with gradient, and the log-density of their u."""
        u_K1, logprob_K = self.balance.sample(self.normal(observation_KO), noise_K1)
        return self.within(u_K1), logprob_K

    def picked(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K 1"]:
        """The balances that it acts by."""
        return self.sampled(observation_KO, torch.zeros_like(observation_KO[:, :1]))[0]

    def within(self, u_K1: Float[Tensor, "K 1"]) -> Float[Tensor, "K 1"]:
        """The balances of numbers in [-1, 1]."""
        return self.low + (self.high - self.low) * (u_K1 + 1) / 2

    @property
    def deviation_A(self) -> Float[Tensor, " A"]:
        return self._log_std_A.exp()

    @property
    def _log_std_A(self) -> Tensor:
        return self.log_std_A.float().clamp(min=LEAST_LOG_STD)


def waves(balance_K1: Float[Tensor, "K 1"]) -> Float[Tensor, "K W"]:
    """sin and cos of beta / SLOWEST^(n / WAVES), n = 0, 1, ...: a number as a network tells it apart from its neighbours."""
    power_n = SLOWEST ** (-torch.arange(WAVES, device=balance_K1.device) / WAVES)
    angle_Kn = balance_K1 * power_n
    return torch.cat([angle_Kn.sin(), angle_Kn.cos()], -1)


@dataclass(frozen=True, kw_only=True)
class Balanced(AbstractBoundedSpec):
    """A family of Gaussian policies, one for each balance beta in [``low``, ``high``] between the value of actions and the data, and a
    model that picks beta by observation (FamO2O, arXiv:2310.17966): on ``observations`` inputs with ``actions`` continuous actions
    whose means are in (-``bound``, ``bound``), or the one saved in the directory ``model``. ``ImplicitFamily`` trains both.

    - ``low`` = ``high``: one Gaussian policy.

    Published: [8, 14] in mazes and [1, 5] in locomotion, on rewards scaled to returns of 1000.
    """

    family: ClassVar[Family] = DENSITIES

    low: float = 0.0
    high: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.low <= self.high < math.inf:
            raise ValueError(
                f"Balanced has low {self.low} and high {self.high}, between which balances are picked: finite, 0 or above, and high no "
                "less than low"
            )

    def load(self, seed: int = 0) -> BalancedPolicy:
        return made(BalancedPolicy, self, seed)
