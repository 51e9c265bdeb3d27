"""Which steps of a denoising path carry the gradient of a reward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.policies import samplers
from gimbal.policies.denoiser import DenoiserPolicy
from gimbal.policies.paths import Paths

# The network's output, by state, time, class and what it sees beside the noise; perhaps checkpointed.
Found = Callable[[DenoiserPolicy, Tensor, Tensor, Tensor, Tensor | None], Tensor]


class GradientEnd(NamedTuple):
    """The samples that are scored, with gradient; how many steps carry it, and how many behind them were left out."""

    sample_ND: Tensor
    count: int
    left: int = 0


class AbstractGradientSteps(ABC):
    """How a recorded path is given the gradient of its end."""

    @property
    @abstractmethod
    def copies(self) -> int:
        """Further samples, each noised again to where the last step began."""

    @abstractmethod
    def misfit(self, sampler: str, length: int) -> str:
        """Why it does not go with such paths; "" where it does."""

    @abstractmethod
    def ended(
        self, policy: DenoiserPolicy, decisions: Paths, generator: np.random.Generator, found: Found
    ) -> GradientEnd:
        """The ends of these paths. One draw of steps for all of them."""


@dataclass(frozen=True, kw_only=True)
class GradientSteps(AbstractGradientSteps):
    """Which of the S denoising steps carry the gradient of a reward, and what is cut off.

    Paths end at a step drawn from the last ``late``: the reward is of the sample, or of the clean sample that the network predicts
    there. ``count`` steps up to it carry gradient: the last ones, or, ``spaced``, equally distant ones from a random first. One draw a
    learner step, for all paths, minibatches and epochs.
    ``detached``: the network's input carries none, so a step passes it on unchanged, and no Jacobian of the network is multiplied. The
    result is noised again to where the last step began, ``copies`` times, and the rewards of all predictions are averaged.

    - DRaFT-K (arXiv:2309.17400): ``count`` K; with K = S it is the full gradient.
    - DRaFT-LV: ``count`` 1, ``copies`` 2.
    - ReFL (arXiv:2304.05977): ``count`` 1, ``late`` above 1; with ``late`` 1 it is DRaFT-1.
    - DRTune (arXiv:2405.00760): ``spaced`` and ``detached``, ``late`` above 1.

    With S = 1 all are the same but DRaFT-LV.
    """

    count: int = 1
    late: int = 1
    spaced: bool = False
    detached: bool = False
    copies: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or self.late < 1 or self.copies < 0:
            raise ValueError(
                f"GradientSteps.count is {self.count}, late {self.late} and copies {self.copies}; count and late must be at least 1, "
                "since without a step there is no gradient, and copies 0 or above"
            )
        if self.copies and (self.count, self.late) != (1, 1):
            raise ValueError(
                f"GradientSteps.copies is {self.copies}; copies are of the last step: set count=1 and late=1"
            )

    def misfit(self, sampler: str, length: int) -> str:
        """Why it does not go with such paths; "" where it does."""
        if max(self.count, self.late) <= length:
            return ""
        return (
            f"update.steps.count is {self.count} and late {self.late}, and a path has {length} steps: set "
            f"update.steps.count={min(self.count, length)} update.steps.late={min(self.late, length)}, or "
            f"sampling.max_length={max(self.count, self.late)}"
        )

    def drawn(self, steps: int, generator: np.random.Generator) -> tuple[list[int], int]:
        """(the steps with gradient, the one at whose end the path is scored), of that many."""
        end = steps - 1 - int(generator.integers(self.late))
        count = min(self.count, end + 1)
        apart = (end + 1) // count if self.spaced else 1
        last = apart * (count - 1)
        first = int(generator.integers(end + 1 - last)) if self.spaced else end - last
        return list(range(first, first + last + 1, apart)), end

    def ended(
        self, policy: DenoiserPolicy, decisions: Paths, generator: np.random.Generator, found: Found
    ) -> GradientEnd:
        chosen, end = self.drawn(decisions.shape[1], generator)
        return GradientEnd(
            self.walked(policy, decisions, chosen, end, found), len(chosen), decisions.shape[1] - 1 - end
        )

    def walked(
        self, policy: DenoiserPolicy, decisions: Paths, chosen: list[int], end: int, found: Found
    ) -> Float[Tensor, "N ..."]:
        """The end of each path under the present weights, or the clean sample predicted at step ``end`` if it goes on from there."""
        x_ND = decisions.state_NXD[:, chosen[0]]
        for k in range(chosen[0], end + 1):
            level_NL = decisions.level_NSL[:, k]
            with torch.set_grad_enabled(k in chosen):
                seen_ND = x_ND.detach() if self.detached else x_ND
                found_ND = found(policy, seen_ND, decisions.time_NS[:, k], decisions.label_N, decisions.given_ND)
            clean_ND, noise_ND = policy.process.split(x_ND, found_ND, level_NL)
            if end < decisions.shape[1] - 1 and k == end:
                return clean_ND
            mean_ND, std_N = samplers.step(
                decisions.sampler, x_ND, clean_ND, noise_ND, level_NL, decisions.amplitude_NS[:, k]
            )
            # The noise that was drawn there, whatever the mean was.
            was_N = decisions.std_NS[:, k]
            moved_ND = decisions.state_NXD[:, k + 1] - decisions.mean_NSD[:, k]
            share_N = (std_N / was_N.where(was_N > 0, 1)).where(was_N > 0, 0)
            x_ND = mean_ND + samplers.wide(share_N, x_ND) * moved_ND
        return x_ND
