"""Denoising: the record of a path from noise to a sample, and how paths are sampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from gimbal.policies.base import Family
from gimbal.records import AbstractDecisions, AbstractSampling

Sampler = Literal["flow_sde", "dance_sde", "cps", "ddim", "ode"]
ODE = "ode"
Reduce = Literal["sum", "mean"]
Spacing = Literal["scheduler", "trailing"]
TRAILING = "trailing"
NO_LABEL = -1


@dataclass(frozen=True, kw_only=True)
class Paths(AbstractDecisions):
    """N paths of S denoising steps over samples of any shape (with D numbers): step s leads from state s to state s + 1.

    A state is signal x0 + noise eps: ``level_NSL`` holds (signal, noise) of the states where a step starts and ends.
    ``amplitude_NS`` is the sampler's noise, 0 for an ODE step, which is not a decision. ``mean_NSD`` and ``std_NS`` are those of the
    sampler's distribution. Log-probabilities are the ``reduce`` over the D dimensions: the mean is the sum divided by D, and its clip
    ranges scale likewise. Rows are padded on the right.
    """

    state_NXD: Float[Tensor, "N X ..."]  # X = S + 1
    level_NSL: Float[Tensor, "N S 4"]
    time_NS: Float[Tensor, "N S"]  # as the network is told it
    amplitude_NS: Float[Tensor, "N S"]
    mean_NSD: Float[Tensor, "N S ..."]
    std_NS: Float[Tensor, "N S"]
    label_N: Int[Tensor, " N"]  # the class that was asked for; NO_LABEL
    length_N: Int[Tensor, " N"]
    given_ND: Float[Tensor, "N ..."] | None = (
        None  # of a policy with history: what it sees beside the noise; 0 where there is nothing
    )
    sampler: Sampler
    reduce: Reduce

    @property
    def shape(self) -> tuple[int, int]:
        n, s = self.amplitude_NS.shape
        return n, s

    @property
    def drawn_NS(self) -> Bool[Tensor, "N S"]:
        """The steps that are decisions: the sampled ones; for an ODE path the last, which represents the sample."""
        drawn_NS = self.amplitude_NS > 0
        if self.sampler != ODE:
            return drawn_NS
        return torch.arange(self.shape[1], device=self.length_N.device) == self.length_N[:, None] - 1

    @property
    def cost_N(self) -> Int[Tensor, " N"]:
        """Pixels of all states from which a sampled step starts: the network reads each of them once."""
        return self.drawn_NS.sum(-1).clamp(min=1) * math.prod(self.state_NXD.shape[-2:])

    @property
    def sample_ND(self) -> Float[Tensor, "N ..."]:
        """The finished samples: what rewards look at, and what losses of the forward process need instead of a path."""
        return self.state_NXD[torch.arange(len(self.length_N)), self.length_N]

    @property
    def scale(self) -> float:
        """What a sum over the dimensions is multiplied by: 1, or 1 / D."""
        return 1.0 if self.reduce == "sum" else 1 / math.prod(self.state_NXD.shape[2:])

    def select(self, rows: Int[Tensor, " M"]) -> Paths:
        length_N = self.length_N[rows]
        s = int(length_N.max())
        return self._with(
            length_N=length_N,
            label_N=self.label_N[rows],
            given_ND=None if self.given_ND is None else self.given_ND[rows],
            state_NXD=self.state_NXD[rows, : s + 1],
            **{name: value[rows, :s] for name, value in self._of_steps().items()},
        )

    @classmethod
    def stack(cls, items: Sequence[Paths]) -> Paths:  # pyrefly: ignore[bad-override]; a batch is of one kind
        longest = max(item.shape[1] for item in items)

        def joined(values: Sequence[Tensor], length: int) -> Tensor:
            return torch.cat(
                [nn.functional.pad(v, (0, 0) * (v.ndim - 2) + (0, length - v.shape[1], 0, 0)) for v in values]
            )

        return items[0]._with(
            length_N=torch.cat([item.length_N for item in items]),
            label_N=torch.cat([item.label_N for item in items]),
            given_ND=torch.cat(given) if (given := [x for item in items if (x := item.given_ND) is not None]) else None,
            state_NXD=joined([item.state_NXD for item in items], longest + 1),
            **{name: joined([item._of_steps()[name] for item in items], longest) for name in items[0]._of_steps()},
        )

    def to(self, device: torch.device) -> Paths:
        return self._with(
            length_N=self.length_N.to(device),
            label_N=self.label_N.to(device),
            given_ND=None if self.given_ND is None else self.given_ND.to(device),
            state_NXD=self.state_NXD.to(device),
            **{name: value.to(device) for name, value in self._of_steps().items()},
        )

    def _of_steps(self) -> dict[str, Tensor]:
        """The tensors with one entry a step."""
        return {
            "level_NSL": self.level_NSL,
            "time_NS": self.time_NS,
            "amplitude_NS": self.amplitude_NS,
            "mean_NSD": self.mean_NSD,
            "std_NS": self.std_NS,
        }

    def _with(self, *, given_ND: Tensor | None, **tensors: Tensor) -> Paths:
        return Paths(sampler=self.sampler, reduce=self.reduce, given_ND=given_ND, **tensors)


@dataclass(frozen=True, kw_only=True)
class PathSampling(AbstractSampling):
    """How to sample: in ``max_length`` denoising steps; those in the window are sampled, the others follow the ODE.

    ``sampler`` is "flow_sde" (Flow-GRPO, arXiv:2505.05470), "dance_sde" (DanceGRPO, arXiv:2505.07818) or "cps" for flows, and
    "ddim" for diffusion; ``noise`` is its amplitude (a, eta). Temperature 0 is the ODE, which users sample with; otherwise it
    is 1. ``sampler`` "ode" uses that ODE in training too, for updates that learn from finished samples: each is then one decision.
    Steps from ``first`` up to, but excluding, ``last`` are sampled; ``last`` counts from the end if below 1. The last step is never
    sampled, since its distribution is nearly a point. ``window`` > 0 samples only that many consecutive steps, from a random position
    per group (MixGRPO, arXiv:2507.21802). ``same_start``: all samples of a group start from one noise. ``reduce`` reduces
    log-probabilities over the dimensions of a sample and sets the scale of clip ranges (ClippedStep). ``spacing`` of a flow's steps:
    "scheduler" as its scheduler has them, the last of which begins almost without noise; "trailing" begins step k of S at 1 - k / S
    (before the scheduler's shift), so that each of few steps counts.

    ``strength`` below 1 begins a flow's path with the picture that the task shows and this much noise: x = (1 - strength) picture +
    strength eps (before the shift too). ``told`` is how much the network takes it to have, from which the steps go down; 0 is as much
    as there is. One step ends at x - told v(x, told). If less is told than there is, some noise stays, by which the samples of a
    generator in one step differ (GDPO-SR, arXiv:2603.16769).
    """

    max_length: int = 10
    sampler: Sampler = "flow_sde"
    noise: float = 0.7
    first: int = 0
    last: int = -1
    window: int = 0
    same_start: bool = False
    reduce: Reduce = "sum"
    spacing: Spacing = "scheduler"
    strength: float = 1.0
    told: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature not in (0, 1):
            raise ValueError(
                f"sampling.temperature is {self.temperature}; a path is sampled at 1, or follows the ODE at 0. sampling.noise sets its "
                "randomness"
            )
        if self.sampler not in get_args(Sampler) or self.reduce not in get_args(Reduce):
            raise ValueError(
                f"sampling.sampler is {self.sampler} and sampling.reduce {self.reduce}; choose among "
                f"{', '.join(get_args(Sampler))}, and {' and '.join(get_args(Reduce))}"
            )
        if self.spacing not in get_args(Spacing):
            raise ValueError(f"sampling.spacing is {self.spacing}; choose among {' and '.join(get_args(Spacing))}")
        if not 0 < self.noise <= 10:
            raise ValueError(f"sampling.noise is {self.noise}; it must be above 0 and at most 10")
        if self.sampler in ("cps", "ddim") and self.noise > 1:
            raise ValueError(f"sampling.noise is {self.noise}; of {self.sampler} it must be at most 1")
        if not 0 < self.strength <= 1 or not 0 <= self.told <= 1:
            raise ValueError(
                f"sampling.strength is {self.strength} and sampling.told {self.told}; strength is above 0 and at most 1, told from 0 "
                "(as much as strength) to 1"
            )
        if self.spacing != TRAILING and self.begins < 1:
            raise ValueError(
                f"sampling.strength is {self.strength} and sampling.told {self.told}, and sampling.spacing=scheduler begins with noise "
                "alone: set sampling.spacing=trailing"
            )
        if self.first < 0 or self.window < 0:
            raise ValueError(f"sampling.first is {self.first} and sampling.window {self.window}; both are 0 or above")

    @property
    def full(self) -> bool:
        return True

    @property
    def begins(self) -> float:
        """The noise from which the steps go down, before the scheduler's shift."""
        return self.told or self.strength

    def drawn(self, steps: int) -> range:
        """The steps that may be sampled, of that many."""
        last = self.last if self.last > 0 else steps + self.last
        return range(self.first, min(last, steps - 1))


PATHS = Family(unit="denoising_steps", sampling=PathSampling, densities=True, earns="score", pays=False)
