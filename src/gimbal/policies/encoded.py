"""A Gaussian policy that acts on a code of what it observes, which critics of its actions read too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from gimbal.composition import ENCODES, Composition, Refusal, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import (
    DENSITIES,
    AbstractBoundedSpec,
    AbstractRealPolicy,
    filled,
    made,
    output_of,
    relu_mlp,
)
from gimbal.policies.gaussian import GaussianPolicy


class EncodedPolicy(AbstractRealPolicy):
    """a ~ N(mean(z), exp(log_std)^2 T), z = phi(o): a ``GaussianPolicy`` of the code z. The gradient of log-probabilities stops at z.

    ``normal(o)`` is z, with gradient: a critic that reads it teaches phi.
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        normalize: bool,
        code: int,
        encoder: list[int],
        seed: int,
    ) -> None:
        super().__init__()
        self.bounded(observations, actions, hidden, bound, normalize)
        self.config |= {"code": code, "encoder": encoder}
        filled([observations, *encoder, code])
        self.phi = relu_mlp([observations, *encoder, code], stable_hash("phi", seed) % 2**63)
        self.acts = GaussianPolicy(code, actions, hidden, 0.0, seed)

    def normal(self, observation_BO: Float[Tensor, "*B O"]) -> Float[Tensor, "*B Z"]:
        return output_of(self.phi, super().normal(observation_BO))

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        return self.acts.draw(self.normal(observation_BO).detach(), noise_BA, temperature_B)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        with torch.no_grad():
            code_KZ = self.normal(observation_KO)
        return self.acts.assess(code_KZ, action_KA, temperature)


@dataclass(frozen=True, kw_only=True)
class Encoded(AbstractBoundedSpec):
    """A Gaussian policy of a code of ``code`` numbers, which a network of the layers ``encoder`` makes of ``observations`` inputs, as
    of a history; with ``actions`` continuous actions, or the policy saved in the directory ``model``. ``hidden`` are the layers from
    code to action. Its first standard deviation is 1; ``bound`` is the environment's.
    """

    family: ClassVar[Family] = DENSITIES

    code: int = 8
    encoder: tuple[int, ...] = (64,)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if not whole.doing(ENCODES):
            yield Refusal(
                f"Encoded acts on a code that its critics teach, and {type(whole.run.learns).__name__} teaches none: begin with "
                "bisimulation, or policy='Gaussian(observations=..., actions=...)'"
            )

    def load(self, seed: int = 0) -> EncodedPolicy:
        return made(EncodedPolicy, self, seed)
