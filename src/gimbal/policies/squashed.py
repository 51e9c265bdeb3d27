"""Squashed Gaussian policies: a vector of real actions between bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gimbal.composition import TELLS_WORTH, Composition, Refusal, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import DENSITIES, AbstractBoundedSpec, AbstractRealPolicy, made, output_of
from gimbal.policies.ensemble import ActionValueNetwork
from gimbal.policies.residual import check_blocks, trunk

LEAST_LOG_STD, MOST_LOG_STD = -5.0, 2.0
EDGE = 1e-6  # nearer to its bound than this share of it, float32 does not know an action from the bound


class SquashedGaussianPolicy(AbstractRealPolicy):
    """a = bound tanh(u), u ~ N(mean(o), exp(log_std(o))^2), independent over the A dimensions.

    log p(a) = sum_A log N(u; mean, std^2) - log(bound (1 - tanh(u)^2)). A temperature T scales the variance of u. The entropy has no
    closed form, so this policy provides none; minus the log-probability of a sample estimates it.
    """

    provides: ClassVar[frozenset[str]] = frozenset()

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        seed: int,
        normalize: bool = False,
        blocks: int = 0,
        judges: int = 0,
    ) -> None:
        super().__init__()
        self.bounded(observations, actions, hidden, bound, normalize)
        # u begins near N(0, 1), which reaches all of (-bound, bound).
        self.moments = trunk(observations, hidden, 2 * actions, blocks, seed)
        self.config |= {"blocks": blocks, "judges": judges}
        self.judge: ActionValueNetwork | None = None
        if judges:
            first = stable_hash("judge", seed) % 2**63
            self.judge = ActionValueNetwork(observations + actions, tuple(hidden), judges, bound, first, False)
            self.judge.requires_grad_(False)

    def take_judge(self, critic: nn.Module) -> None:
        """Let a copy of this critic judge from now on."""
        assert self.judge is not None, "policy.judges is 0"
        self.judge.load_state_dict(critic.state_dict())

    def worth(self, observation_BO: Float[Tensor, "B O"], action_BA: Float[Tensor, "B A"]) -> Float[Tensor, " B"]:
        """min_m Q_m(o, a) of the critic that travels with it."""
        assert self.judge is not None, "policy.judges is 0"
        held = next(self.judge.parameters())
        return self.judge(self.normal(observation_BO).to(held), action_BA.to(held)).min(-1).values.float()

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        mean_BA, log_std_BA = self._moments(observation_BO)
        log_std_BA = log_std_BA + _spread(temperature_B[:, None], log_std_BA)
        action_BA = self.bound * torch.addcmul(mean_BA, log_std_BA.exp(), noise_BA).tanh()
        # Of the action as it is recorded, not of u: the trainer has nothing else to evaluate.
        return action_BA, torch.where(temperature_B > 0, self._logprob(action_BA, mean_BA, log_std_BA), 0)

    def sample(
        self, observation_KO: Float[Tensor, "K O"], noise_XA: Float[Tensor, "X A"]
    ) -> tuple[Float[Tensor, "X A"], Float[Tensor, " X"]]:
        """Actions through which a gradient flows back into the weights, and their log-probabilities, exact near the bounds too: one in
        each observation, or as many as the noise is longer, those of an observation on end."""
        mean_XA, log_std_XA = self._moments(observation_KO)
        if (each := len(noise_XA) // max(1, len(observation_KO))) > 1:
            mean_XA, log_std_XA = (moment_KA.repeat_interleave(each, 0) for moment_KA in (mean_XA, log_std_XA))
        u_XA = torch.addcmul(mean_XA, log_std_XA.exp(), noise_XA)
        # (u - mean) / std is the noise; and log(1 - tanh(u)^2) = 2 log 2 + 2 u - 2 log(1 + e^2u) keeps its digits where tanh(u) is 1.
        # Few calls, for each takes as long as its arithmetic, and as long again on the way back: softplus is log(1 + e^2u) / 2.
        rest_XA = torch.addcmul(log_std_XA, noise_XA, noise_XA, value=0.5).add(u_XA, alpha=2)
        logprob_XA = 4 * nn.functional.softplus(u_XA, beta=2) - rest_XA
        constant = 0.5 * math.log(2 * math.pi) + 2 * math.log(2) + math.log(self.bound)
        return self.bound * u_XA.tanh(), logprob_XA.sum(-1) - self.actions * constant

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        mean_KA, log_std_KA = self._moments(observation_KO)
        log_std_KA = log_std_KA + _spread(torch.tensor(temperature), log_std_KA)
        logprob_K = self._logprob(action_KA, mean_KA, log_std_KA)
        return logprob_K, torch.full_like(logprob_K, math.nan)  # of an entropy, which it does not provide

    def _logprob(self, action_KA: Tensor, mean_KA: Tensor, log_std_KA: Tensor) -> Tensor:
        share_KA = (action_KA / self.bound).clamp(-1 + EDGE, 1 - EDGE)
        z_KA = (share_KA.atanh() - mean_KA) / log_std_KA.exp()
        rest_KA = torch.addcmul(log_std_KA, z_KA, z_KA, value=0.5) + torch.log1p(-share_KA.square())
        constant = self.actions * (0.5 * math.log(2 * math.pi) + math.log(self.bound))
        return -rest_KA.sum(-1) - constant

    def _moments(self, observation_KO: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation at a temperature of 1."""
        mean_KA, log_std_KA = output_of(self.moments, self.normal(observation_KO)).chunk(2, dim=-1)
        return mean_KA, log_std_KA.clamp(LEAST_LOG_STD, MOST_LOG_STD)


def _spread(temperature: Tensor, like: Tensor) -> Tensor:
    """What a temperature adds to a log standard deviation."""
    return 0.5 * temperature.to(like.device).log()


@dataclass(frozen=True, kw_only=True)
class SquashedGaussian(AbstractBoundedSpec):
    """A Gaussian policy squashed into (-``bound``, ``bound``), on ``observations`` inputs with ``actions`` continuous actions, or
    the one saved in the directory ``model``. Mean and deviation depend on the observation. ``normalize``: it sees observations in
    units of their own spread. ``blocks``: so many residual blocks of the one width in ``hidden`` (SimBa, arXiv:2410.09754; published: 1
    of 128, with ``normalize``). ``judges``: so many networks of the critic travel with the policy, for an engine that asks what its
    actions are worth (``EarlyStop``); they have its sizes.
    """

    family: ClassVar[Family] = DENSITIES

    blocks: int = 0
    judges: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_blocks(self.hidden, self.blocks)
        if self.judges < 0:
            raise ValueError(f"SquashedGaussian.judges is {self.judges}; it counts networks of the critic, 0 or more")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if self.judges and not whole.doing(TELLS_WORTH):
            name = type(whole.run.learns).__name__
            yield Refusal(
                f"policy.judges is {self.judges} networks of a critic that travel with the policy, and {name} brings it none: set "
                "policy.judges=0, or begin with sac"
            )

    def load(self, seed: int = 0) -> SquashedGaussianPolicy:
        return made(SquashedGaussianPolicy, self, seed)
