"""A linear model of what an action leads to, in a lift of the observation (a Koopman model)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.policies.control import output_of, relu_mlp


class KoopmanModel(nn.Module):
    """z = [o, phi(o)],  z' = A z + B a,  on observations o in their own units and actions a as shares of the bound.

    A begins as the identity and B as 0, so the first prediction is that nothing changes.
    """

    def __init__(self, observations: int, actions: int, spec: Koopman, seed: int) -> None:
        super().__init__()
        self.width, self.weight = observations + spec.features, spec.weight
        sizes = [observations, *spec.hidden, spec.features]
        self.phi = relu_mlp(sizes, stable_hash("phi", seed) % 2**63) if spec.features else None
        inputs = self.width + actions
        self.change = (
            relu_mlp([inputs, *spec.predict, self.width], stable_hash("change", seed) % 2**63)
            if spec.predict
            else nn.Sequential(nn.Linear(inputs, self.width, bias=False))
        )
        for weight in self.change[-1].parameters():
            nn.init.zeros_(weight)

    def lift(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B Z"]:
        if self.phi is None:
            return observation_BO
        return torch.cat([observation_BO, output_of(self.phi, observation_BO)], -1)

    def step(self, lifted_BZ: Float[Tensor, "B Z"], action_BA: Float[Tensor, "B A"]) -> Float[Tensor, "B Z"]:
        """A z + B a, the former as z + (A - 1) z; or z + f(z, a)."""
        return lifted_BZ + output_of(self.change, torch.cat([lifted_BZ, action_BA], -1))

    def error(
        self,
        observation_BO: Float[Tensor, "B O"],
        action_BA: Float[Tensor, "B A"],
        next_BO: Float[Tensor, "B O"],
    ) -> Float[Tensor, " B"]:
        """The mean square over Z of z' - [o', phi(o')], with gradient into both."""
        ahead_BZ = self.step(self.lift(observation_BO), action_BA)
        return (ahead_BZ - self.lift(next_BO)).square().mean(-1)


@dataclass(frozen=True, kw_only=True)
class Koopman:
    """A linear model of what an action leads to, in a lift of the observation:

        z = [o, phi(o)],   z' = A z + B a,   loss: weight mean_Z (z' - [o', phi(o')])^2

    phi has layers ``hidden`` and ``features`` outputs. ``predict``: z' = z + f(z, a) by a network of these layers, to compare with.

    - ``features`` = 0: the lift is the identity; the least loss on o' = F o + G a has A = F and B = G.
    - B = 0 and A = 1, as at the start: z' is the lift of o.

    Published (KORR, arXiv:2509.12562, and its code): one step, no decoder, 256 features, two layers of 256, weight 1, A and B begin at
    random. Ours: the lift holds o too, so that it cannot shrink to a point and its errors have units. A is not bounded: a bound on its
    norm would forbid systems as plain as a place that moves by its speed.

    Confidence: verified.
    """

    features: int = 32
    hidden: tuple[int, ...] = (64,)
    predict: tuple[int, ...] = ()
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.features < 0 or not self.weight >= 0:
            raise ValueError(
                f"Koopman has features {self.features}, numbers of the lift beside the observation's own, and weight {self.weight}, of "
                "its error in the loss; both are 0 or above"
            )
