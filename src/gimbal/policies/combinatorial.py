"""A policy over sets of things to do: the feasible one that a network values most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import NO_DENSITY, made, output_of, relu_mlp, without_density
from gimbal.policies.implicit import AbstractImplicitPolicy
from gimbal.policies.program import BinaryProgram


class CombinatorialPolicy(AbstractImplicitPolicy):
    """argmax_a Q(o, a) over a in {0, 1}^A with rows a <= limits, solved exactly, with probability 1 - ``explore``; else things are
    added in a random order, each if it still fits. ``explore`` is a buffer that the update moves; it is sent with the weights."""

    explore: Tensor

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        rows: Sequence[Sequence[float]],
        limits: list[float],
        scale: float,
        seed: int,
    ) -> None:
        super().__init__()
        self.bounded(observations, actions, hidden, 1.0, False)
        self.config = {name: self.config[name] for name in ("observations", "actions", "hidden")}
        self.config |= {"rows": [list(row) for row in rows], "limits": limits, "scale": scale}
        self.scale = scale
        self.program = BinaryProgram(np.array(rows, float), np.array(limits, float))
        self.net = relu_mlp([observations + actions, *hidden, 1], seed)
        self.register_buffer("explore", torch.ones(()))

    def values(self, observation_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"]) -> Float[Tensor, " K"]:
        """Q."""
        return self.scale * output_of(self.net, torch.cat([observation_KO, action_KA], -1))[:, 0]

    @torch.no_grad()
    def best(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """The best feasible action in each observation: one program each, of the network with that observation filled in."""
        layers = [
            (one.weight.double().cpu().numpy(), one.bias.double().cpu().numpy())
            for one in self.net
            if isinstance(one, nn.Linear)
        ]
        (first_JI, bias_J), *rest = layers
        seen_MO, place_K = np.unique(observation_KO.double().cpu().numpy(), axis=0, return_inverse=True)
        cut = seen_MO.shape[1]
        found = [
            self.program.best([(first_JI[:, cut:], bias_J + first_JI[:, :cut] @ seen_O), *rest]) for seen_O in seen_MO
        ]
        return torch.from_numpy(np.stack(found)[place_K].astype(np.float32)).to(observation_KO.device)

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S X"]:
        """Whether it explores, and the order in which it would then add things."""
        return torch.from_numpy(generator.standard_normal((steps, 1 + self.actions), dtype=np.float32))

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B X"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        tries_B = (torch.special.ndtr(noise_BA[:, 0]) < self.explore.float()) & (temperature_B > 0)
        action_BA = torch.zeros(len(observation_BO), self.actions, device=observation_BO.device)
        if bool(tries_B.any()):
            action_BA[tries_B] = self.added(noise_BA[tries_B, 1:])
        if not bool(tries_B.all()):
            action_BA[~tries_B] = self.best(observation_BO[~tries_B])
        return self.told(observation_BO, action_BA, temperature_B)

    def added(self, order_BA: Float[Tensor, "B A"]) -> Float[Tensor, "B A"]:
        """Things that are added by the size of these numbers, the largest first, each if it still fits."""
        rows_RA, limits_R = self.program.rows_RI, self.program.limits_R
        action_BA = np.zeros(order_BA.shape, np.float32)
        for action_A, order_A in zip(action_BA, order_BA.float().cpu().numpy(), strict=True):
            left_R = limits_R.copy()
            for place in np.argsort(-order_A, kind="stable"):
                if (rows_RA[:, place] <= left_R + ROUNDING).all():
                    left_R -= rows_RA[:, place]
                    action_A[place] = 1
        return torch.from_numpy(action_BA).to(order_BA.device)

    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """tanh Q(o, 1/2) in every dimension."""
        half_KA = torch.full((len(observation_KO), self.actions), 0.5, device=observation_KO.device)
        return (self.values(observation_KO, half_KA) / self.scale).tanh()[:, None].expand(-1, self.actions)


ROUNDING = 1e-9  # of sums of costs
LARGEST = 1e6  # of costs, limits and values: programs are solved to about 1e-6 of that


@dataclass(frozen=True, kw_only=True)
class Combinatorial(AbstractPolicySpec):
    """Does any of ``actions`` things together, as far as ``rows`` a <= ``limits`` lets it: those that a network on ``observations``
    inputs and the 0s and 1s of the action values most, found exactly by a mixed-integer program at every step (SEQUOIA,
    arXiv:2503.01919); or with the weights saved in the directory ``model``. ``scale`` is the size of a typical return: the value of an
    output of 1.

    Each of ``rows`` has a cost from 0 of every thing, and ``limits`` what they may cost together: a budget, capacities, a matching
    (each place once). What must be done together (a path) is left out: a part of a feasible action is feasible here.

    - one row of ones and a limit of k: the best k or fewer.
    - no hidden layers: the program is linear, a knapsack.

    Published: hidden (16, 32). A program of such a network takes some ten milliseconds here, and more the more units it has.
    """

    family: ClassVar[Family] = NO_DENSITY

    observations: int
    actions: int
    rows: tuple[tuple[float, ...], ...]
    limits: tuple[float, ...]
    hidden: tuple[int, ...] = (16, 32)
    scale: float = 1.0
    model: str = ""

    def __post_init__(self) -> None:
        if not self.rows or len(self.rows) != len(self.limits):
            raise ValueError(
                f"Combinatorial has {len(self.rows)} rows and {len(self.limits)} limits: a limit of each row, and at least one"
            )
        numbers = [*self.limits, *(cost for row in self.rows for cost in row)]
        if wrong := [number for number in numbers if not 0 <= number <= LARGEST]:
            raise ValueError(
                f"policy.rows or policy.limits has {wrong[0]:g}; costs and limits are from 0 to {LARGEST:g}, which a program can tell "
                "apart from 0"
            )
        if not 1 / LARGEST <= self.scale <= LARGEST:
            raise ValueError(
                f"policy.scale is {self.scale:g}; it is the size of a typical return, from {1 / LARGEST:g} to {LARGEST:g}"
            )

    def _misfit(self) -> str:
        """What is wrong with the sizes, or ''. Not said at once: another environment's are set one after another."""
        wrong = next((len(row) for row in self.rows if len(row) != self.actions), None)
        if wrong is None:
            return ""
        return (
            f"a row of policy.rows has {wrong} costs, and there are {self.actions} actions: set policy.rows to rows of {self.actions} "
            "numbers each, and policy.limits to one limit a row"
        )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield from without_density(self, whole)
        if misfit := self._misfit():
            yield Refusal(misfit)

    def load(self, seed: int = 0) -> CombinatorialPolicy:
        if misfit := self._misfit():
            raise ValueError(misfit)
        return made(CombinatorialPolicy, self, seed)

    def at(self, directory: Path) -> Combinatorial:
        return replace(self, model=str(directory))
