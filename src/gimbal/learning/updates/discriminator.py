"""Networks that learn to tell real samples from the policy's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.dataflow.real_samples import RealSamples
from gimbal.learning.updates.forward_process import Noised
from gimbal.policies.denoiser import DenoiserPolicy, single_blocks

DISCRIMINATOR = "discriminator"


@dataclass(frozen=True, kw_only=True)
class AdversarialLoss(AbstractPart):
    """The GAN loss of distribution matching (DMD2, arXiv:2405.14867): the policy's noised samples shall pass for real ones, or for its
    own of one step more (ASD, arXiv:2511.01419).

    D(x_t, t, c) is the mean of the output of a network that begins as the policy did, and so a linear head on its features. With
    ``real`` samples and the policy's at the same times and noises:

        discriminator    softplus(- D(real_t)) + softplus(D(x_t)), at each update of fake
        policy           + coef softplus(- D(x_t))

    ``real`` None is adversarial self-distillation: what the policy predicts at a step of its path, which is its sample of so many steps
    if it stops there, shall pass for what it predicts at the next step of the same path, without gradient. The last step has no next:
    scores alone align it with the teacher.

    - ``coef`` to 0: distribution matching alone.
    - D constant: no gradient for the policy.
    - ``real`` None, and a path at its last step: distribution matching alone.

    Published: ``coef`` 1e-3 to 1e-2, and the head is on the features of fake, which both losses train; here the discriminator is a
    network of its own, with ``optimization.critic_learning_rate``. Left out of ASD, of which we know the abstract alone: more steps for
    the first block of a stream.
    """

    real: RealSamples | None = field(default_factory=RealSamples)
    coef: float = 0.03

    def __post_init__(self) -> None:
        if not 0 < self.coef < float("inf"):
            raise ValueError(
                f"AdversarialLoss.coef is {self.coef}; it must be above 0, and without one leave the loss out: adversarial=None"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if self.real is not None:
            yield from single_blocks("AdversarialLoss with real samples", whole)
        elif whole.run.sampling.max_length < 2:
            yield Refusal(
                "update.adversarial.real=None compares a step of a path with the next, and a path has one: set "
                "sampling.max_length=2 or more, or update.adversarial.real='RealSamples()'"
            )


def judged(network: DenoiserPolicy, rows: Noised) -> Float[Tensor, " J"]:
    """D of noised samples: the mean of the network's output over all dimensions."""
    return rows.said(network).flatten(1).mean(-1)
