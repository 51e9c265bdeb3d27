"""What all learned worlds have: their units, where they end, and what they say of steps ahead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from gimbal.config.parts import label, resolve
from gimbal.policies.normalizer import Normalizer

Ends = str | Callable[..., Any]


@dataclass(frozen=True)
class Foreseen:
    """What each of M members (of a diffusion world: draws) says of S steps of N rows. T = O + 1 targets: the change of the observation,
    and the reward."""

    seen_MNSO: Tensor  # before each action: the first is real, the others its own
    mean_MNST: Tensor  # in units of the targets
    log_std_MNST: Tensor | None  # in units of the targets' spread; None: a draw, of a world without a likelihood
    end_MNS: Tensor | None  # logit

    @property
    def next_MNSO(self) -> Float[Tensor, "M N S O"]:
        return self.seen_MNSO + self.mean_MNST[..., :-1]

    @property
    def reward_MNS(self) -> Float[Tensor, "M N S"]:
        return self.mean_MNST[..., -1]


class AbstractWorldNetwork(nn.Module, ABC):
    """The network of a learned world. Inputs and targets are scaled by their spread over everything passed to ``observe``; the
    statistics are buffers, saved with the weights."""

    spec: AbstractWorld

    def __init__(self, spec: AbstractWorld) -> None:
        super().__init__()
        self.spec = spec
        self.rule = resolve(str(spec.ends)) if ":" in str(spec.ends) else None
        self.inputs, self.targets = Normalizer(spec.observations + spec.actions), Normalizer(spec.observations + 1)

    @abstractmethod
    def follow(self, first_NO: Float[Tensor, "N O"], action_NSA: Shaped[Tensor, "N S A"]) -> Foreseen:
        """What comes of these actions from here, each step from what the world said itself."""

    @abstractmethod
    def step(
        self,
        seen_KO: Float[Tensor, "K O"],
        action_KA: Shaped[Tensor, "K A"],
        pick_K: Float[Tensor, " K"],
        noise_KT: Float[Tensor, "K T"],
    ) -> tuple[Float[Tensor, "K O"], Float[Tensor, " K"], Bool[Tensor, " K"]]:
        """What is observed next, the reward, and whether that is the end: drawn by ``pick_K`` in [0, 1) and ``noise_KT`` ~ N(0, 1), so
        that the same of both is the same step to the bit."""

    @abstractmethod
    def returns(self, seen_KO: Float[Tensor, "K O"], action_KHA: Float[Tensor, "K H A"]) -> Float[Tensor, " K"]:
        """What these actions earn from here, on average. Nothing counts behind an end."""

    @abstractmethod
    def encoded(self, action_KA: Shaped[Tensor, "*K a"]) -> Float[Tensor, "*K A"]:
        """An action as the network reads it."""

    @torch.no_grad()
    def observe(self, seen_KO: Tensor, action_KA: Tensor, next_KO: Tensor, reward_K: Tensor) -> None:
        """Let these real steps count in the units, once each."""
        self.inputs.observe(self.checked(torch.cat([seen_KO, self.encoded(action_KA)], -1)))
        self.targets.observe(torch.cat([next_KO - seen_KO, reward_K[:, None]], -1))

    def checked(self, x_KI: Float[Tensor, "*K I"]) -> Float[Tensor, "*K I"]:
        if x_KI.shape[-1] != len(self.inputs.mean_O):
            raise ValueError(
                f"the world model reads {len(self.inputs.mean_O)} numbers, but observation and action have {x_KI.shape[-1]}: set "
                "world.observations and world.actions"
            )
        return x_KI

    @property
    def spread_T(self) -> Float[Tensor, " T"]:
        return (self.targets.variance_O + 1e-8).sqrt()

    def ended(self, next_MKO: Float[Tensor, "*M O"], end_MK: Float[Tensor, " *M"] | None) -> Bool[Tensor, " *M"]:
        """Where the environment is taken to end."""
        if end_MK is not None:
            return end_MK > 0
        if self.spec.ends == "never":
            return torch.zeros_like(next_MKO[..., 0], dtype=torch.bool)
        return _ends(self.rule, next_MKO.flatten(0, -2)).reshape(next_MKO.shape[:-1])


def _ends(rule: Any, next_KO: Tensor) -> Bool[Tensor, " K"]:
    found = rule(next_KO)
    if not isinstance(found, Tensor) or found.shape != next_KO.shape[:1] or found.dtype != torch.bool:
        raise ValueError(
            f"world.ends returned {type(found).__name__} for {len(next_KO)} observations; it must return a bool tensor, one for each"
        )
    return found


@dataclass(frozen=True, kw_only=True)
class AbstractWorld(ABC):
    """A learned world: what it reads and predicts, by networks of ``hidden`` layers.

    ``ends``: "never"; "learned", by an output of its own; or a known function of next observations [K, O] that is True where the
    environment ends.
    """

    observations: int
    actions: int
    hidden: tuple[int, ...] = (64, 64)
    ends: Ends = "never"

    def __post_init__(self) -> None:
        if self.observations < 1 or self.actions < 1:
            raise ValueError(
                f"{type(self).__name__} has observations {self.observations} and actions {self.actions}; each is at least 1"
            )
        if not isinstance(self.ends, str):
            object.__setattr__(self, "ends", label(self.ends))
        if self.ends not in ("never", "learned") and ":" not in str(self.ends):
            raise ValueError(
                f"world.ends is {self.ends!r}; it must be never, learned, or a function of next observations (file.py:function)"
            )

    @abstractmethod
    def load(self, seed: int) -> AbstractWorldNetwork: ...
