"""Policies that bring the actions of a frozen policy nearer to recorded data, by the gradient of the data's density."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import (
    NO_DENSITY,
    AbstractBoundedSpec,
    config_of,
    output_of,
    read_weights,
    relu_mlp,
    without_density,
)
from gimbal.policies.frozen_base import base_in, frozen
from gimbal.policies.implicit import AbstractImplicitPolicy
from gimbal.policies.normalizer import Normalizer


class NoiseEstimate(nn.Module):
    """e(c, x, s): the noise e ~ N(0, 1) that is expected in x = clean + s e, given c. The score of x's density is - e(c, x, s) / s."""

    def __init__(self, given: int, size: int, hidden: list[int], seed: int) -> None:
        super().__init__()
        self.net = relu_mlp([given + size + 1, *hidden, size], seed)

    def forward(
        self, given_KC: Float[Tensor, "K C"], x_KD: Float[Tensor, "K D"], noise_K1: Float[Tensor, "K 1"]
    ) -> Float[Tensor, "K D"]:
        return output_of(self.net, torch.cat([given_KC, x_KD, noise_K1.log()], -1))


class TowardDataPolicy(AbstractImplicitPolicy):
    """a = bound clip(x + ``action_weight`` (x_n - x) + ``state_weight`` (I(o, p - s e_o(p)) - I(o, p)), -1, 1), where x is the base's
    action in units of the bound, s is ``noise``, and in units of the observations' spread

        x_0 = x,   x_{j+1} = x_j - s e_a(o, x_j) / n   (n = ``steps``)   toward actions that are recorded in such a state
        p = o + F(o, x), the observation that is expected next; p - s e_o(p) is that of all recorded ones which it stands for
        I(o, o'), the action that leads from o to o'

    e_a and e_o estimate noise, so that - s e is s^2 times the gradient of a log-density. The base never moves.
    """

    def __init__(self, spec: TowardData, sizes: dict[str, Any], seed: int) -> None:
        super().__init__()
        self.spec = spec
        observations, actions, hidden = (sizes[name] for name in ("observations", "actions", "hidden"))
        self.bounded(observations, actions, hidden, sizes["bound"], sizes["normalize"])
        self.config |= {"base": sizes["base"]}

        def seeded(name: str) -> int:
            return stable_hash("toward data", name, seed) % 2**63

        self.base = None if sizes["base"] is None else frozen(sizes["base"], seed)
        self.action_noise = NoiseEstimate(observations, actions, hidden, seeded("action"))
        self.state_noise = NoiseEstimate(0, observations, hidden, seeded("state"))
        self.ahead = relu_mlp([observations + actions, *hidden, observations], seeded("ahead"))
        self.between = relu_mlp([2 * observations, *hidden, actions], seeded("between"))
        self.changes = Normalizer(observations)  # of an observation by one step: its spread is the unit of F and I

    def forward_change(self, normal_KO: Float[Tensor, "K O"], share_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K O"]:
        """The change by this action, in units of the spread of changes."""
        return output_of(self.ahead, torch.cat([normal_KO, share_KA], -1))

    def inverse(self, normal_KO: Float[Tensor, "K O"], change_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """The action of this change, in units of the bound."""
        return output_of(self.between, torch.cat([normal_KO, change_KO], -1))

    def corrected(self, normal_KO: Float[Tensor, "K O"], share_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K A"]:
        """Actions in units of the bound, nearer to the data."""
        spec, moved_KA = self.spec, share_KA
        noise_K1 = torch.full_like(share_KA[:, :1], spec.noise)
        if spec.action_weight:
            near_KA = share_KA
            for _ in range(spec.steps):
                near_KA = near_KA - spec.noise / spec.steps * self.action_noise(normal_KO, near_KA, noise_K1)
            moved_KA = moved_KA + spec.action_weight * (near_KA - share_KA)
        if spec.state_weight:
            change_KO = self.forward_change(normal_KO, share_KA)
            spread_O = (self.changes.variance_O + 1e-8).sqrt()
            next_KO = normal_KO + self.changes.mean_O + spread_O * change_KO
            pull_KO = -spec.noise * self.state_noise(next_KO[:, :0], next_KO, noise_K1)
            aimed_KA = self.inverse(normal_KO, change_KO + pull_KO / spread_O)
            moved_KA = moved_KA + spec.state_weight * (aimed_KA - self.inverse(normal_KO, change_KO))
        return moved_KA.clamp(-1, 1)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        base_BA = self.of_base(observation_BO, noise_BA, temperature_B)
        action_BA = self.bound * self.corrected(self.normal(observation_BO).float(), base_BA / self.bound)
        return self.told(observation_BO, action_BA, temperature_B)

    def of_base(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> Float[Tensor, "B A"]:
        """What the base does, within the bound: 0 without one."""
        if self.base is None:
            return torch.zeros_like(noise_BA)
        return self.base.draw(observation_BO, noise_BA, temperature_B)[0].clamp(-self.bound, self.bound)

    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """The mode of the base, corrected."""
        still_K = observation_KO.new_zeros(len(observation_KO))
        still_KA = still_K[:, None].expand(-1, self.actions)
        base_KA = self.of_base(observation_KO, still_KA, still_K)
        return self.bound * self.corrected(self.normal(observation_KO).float(), base_KA.float() / self.bound)


@dataclass(frozen=True, kw_only=True)
class TowardData(AbstractBoundedSpec):
    """Brings the actions of a frozen policy nearer to recorded data when it acts, on ``observations`` inputs with ``actions``
    continuous actions in [-``bound``, ``bound``], or with the weights saved in the directory ``model`` (CDSA, arXiv:2406.07541).

    ``base`` is the directory of a policy that a run of bc, td3_bc, iql, cql, fql, sac or td3 saved; without one the action 0 is
    corrected. ``action_weight`` follows the density of actions in a state, in ``steps`` steps; ``state_weight`` that of the states
    which follow. Both, ``noise`` and ``steps`` may differ where a trained policy is evaluated: nothing is learned from them.
    ``noise`` is in units of the bound and of the observations' spread (``normalize``).

    - Both weights 0: the base.
    - Actions of a Gaussian density N(m(o), d^2): one step at ``action_weight`` 1 goes s^2 / (s^2 + d^2) of the way to m(o).
    """

    family: ClassVar[Family] = NO_DENSITY

    normalize: bool = True
    base: str = ""
    action_weight: float = 0.3
    state_weight: float = 0.3
    noise: float = 0.3
    steps: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("action_weight", "state_weight"):
            if not 0 <= vars(self)[name] < math.inf:
                raise ValueError(
                    f"TowardData.{name} is {vars(self)[name]}; it is how much of a way to the data is gone, from 0 (none of it)"
                )
        if not 0 < self.noise < math.inf or self.steps < 1:
            raise ValueError(
                f"TowardData has noise {self.noise}, within which the data's density is smoothed, above 0, and steps {self.steps}, "
                "at least 1"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield from without_density(self, whole)
        if not self.base and not self.model:
            yield Advice(
                "policy.base names no policy, so that the action 0 is brought nearer to the data: policy.base=runs/RUN/model, of a run "
                "of td3_bc or iql",
                always=True,
            )

    def load(self, seed: int = 0) -> TowardDataPolicy:
        own = {name: vars(self)[name] for name in ("observations", "actions", "bound", "normalize")}
        if self.model:
            policy = TowardDataPolicy(self, config_of(self, own.keys() | {"hidden", "base"}, "cdsa"), seed)
            read_weights(policy, self.model)
            return policy.eval()
        base = base_in(self.base, self) if self.base else None
        policy = TowardDataPolicy(self, own | {"hidden": list(self.hidden), "base": base}, seed)
        if policy.base is not None:
            read_weights(policy.base, self.base)
        return policy.eval()
