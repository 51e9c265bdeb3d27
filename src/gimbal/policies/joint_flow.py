"""Flows of what several agents do at once: velocities that attend between agents, told how far a step goes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import (
    NO_DENSITY,
    AbstractBoundedSpec,
    config_of,
    read_weights,
    relu_mlp,
    without_density,
)
from gimbal.policies.implicit import AbstractImplicitPolicy


class AgentAttention(nn.Module):
    """h_i <- h_i + tanh(g) sum_j softmax_j(q_i k_j / sqrt(H)) v_j over the agents j, itself among them. The gate g is learned and
    begins at 0, where agents are independent."""

    def __init__(self, hidden: int, seed: int) -> None:
        super().__init__()
        self.mix = relu_mlp([hidden, 3 * hidden], seed)
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, hidden_KNH: Float[Tensor, "K N H"]) -> Float[Tensor, "K N H"]:
        query_KNH, key_KNH, value_KNH = self.mix(hidden_KNH).chunk(3, dim=-1)
        score_KNN = query_KNH @ key_KNH.transpose(1, 2) / math.sqrt(hidden_KNH.shape[-1])
        return hidden_KNH + self.gate.tanh() * (score_KNN.softmax(-1) @ value_KNH)


class JointVelocity(nn.Module):
    """u(o, x, t, d): the mean velocity over the next d of the way from noise, at t = 0, to the actions of N agents, at t = 1; with
    d = 0 the velocity. All agents have the same weights; each sees its own part of o and x, and the others' behind every hidden
    layer."""

    def __init__(
        self, observations: int, actions: int, hidden: tuple[int, ...], agents: int, coupled: bool, seed: int
    ) -> None:
        super().__init__()
        self.agents = agents
        sizes = [(observations + actions) // agents + 2, *hidden]

        def seeded(*name: Any) -> int:
            return stable_hash("joint flow", *name, seed) % 2**63

        pairs = enumerate(pairwise(sizes))
        self.layers = nn.ModuleList(relu_mlp(pair, seeded("layer", number)) for number, pair in pairs)
        self.between = nn.ModuleList(
            AgentAttention(width, seeded("between", number)) for number, width in enumerate(hidden if coupled else ())
        )
        self.last = relu_mlp([sizes[-1], actions // agents], seeded("last"))

    def forward(
        self,
        observation_KO: Float[Tensor, "K O"],
        x_KA: Float[Tensor, "K A"],
        time_K1: Float[Tensor, "K 1"],
        span_K1: Float[Tensor, "K 1"],
    ) -> Float[Tensor, "K A"]:
        count = len(x_KA)
        when_KN2 = torch.cat([time_K1, span_K1], -1)[:, None].expand(-1, self.agents, -1)
        parts = [part.reshape(count, self.agents, -1) for part in (observation_KO, x_KA)]
        hidden_KNH = torch.cat([*parts, when_KN2], -1)
        for number, layer in enumerate(self.layers):
            hidden_KNH = layer(hidden_KNH).relu()
            if self.between:
                hidden_KNH = self.between[number](hidden_KNH)
        return self.last(hidden_KNH).reshape(count, -1)

    def coupling(self) -> float:
        """The mean size of the gates, tanh(g)."""
        sizes = [float(gate.detach().tanh().abs()) for name, gate in self.named_parameters() if name.endswith("gate")]
        return sum(sizes) / max(1, len(sizes))


class JointFlowPolicy(AbstractImplicitPolicy):
    """a = bound clip(x_1, -1, 1) of all agents at once, where x_{t+d} = x_t + d u(o, x_t, t, d) leads from noise x_0 in K steps of
    d = 1 / K; for an ordinary flow, which knows no mean velocities, x_{t+d} = x_t + d u(o, x_t, t, 0).

    ``alone``: each agent draws the noise of all by itself, follows it, and does its own part of where that leads.
    """

    def __init__(self, spec: JointFlow, sizes: dict[str, Any], seed: int) -> None:
        super().__init__()
        self.spec = spec
        observations, actions, hidden, agents = (
            sizes[name] for name in ("observations", "actions", "hidden", "agents")
        )
        self.bounded(observations, actions, hidden, sizes["bound"], sizes["normalize"])
        self.config |= {name: sizes[name] for name in ("agents", "coupled", "averaged")}
        self.flow = JointVelocity(observations, actions, tuple(hidden), agents, sizes["coupled"], seed)

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S X"]:
        draws = self.spec.agents if self.spec.alone else 1
        return torch.from_numpy(generator.standard_normal((steps, draws * self.actions), dtype=np.float32))

    def end(self, normal_KO: Float[Tensor, "K O"], noise_KA: Float[Tensor, "K A"], steps: int) -> Float[Tensor, "K A"]:
        """Where it leads from this noise in so many steps, within the bound."""
        x_KA = noise_KA
        for number in range(steps):
            time_K1 = torch.full_like(x_KA[:, :1], number / steps)
            span_K1 = torch.full_like(time_K1, 1 / steps if self.spec.averaged else 0.0)
            x_KA = x_KA + self.flow(normal_KO, x_KA, time_K1, span_K1) / steps
        return x_KA.clamp(-1, 1)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B X"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        warm_BX = temperature_B[:, None].sqrt() * noise_BA
        normal_BO, draws = self._seen(observation_BO), noise_BA.shape[1] // self.actions
        start_QA = warm_BX.reshape(-1, self.actions).to(normal_BO.dtype)
        share_QA = self.end(normal_BO.repeat_interleave(draws, 0), start_QA, self.spec.flow_steps)
        if self.spec.alone:
            agents = torch.arange(draws)
            share_BNNA = share_QA.reshape(len(noise_BA), draws, draws, -1)  # whose draw, whose part
            share_QA = share_BNNA[:, agents, agents].reshape(len(noise_BA), -1)
        return self.told(observation_BO, self.bound * share_QA.float(), temperature_B)

    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """Where it points at first from noise 0."""
        normal_KO = self._seen(observation_KO)
        start_KA = normal_KO.new_zeros(len(normal_KO), self.actions)
        return self.bound * self.flow(normal_KO, start_KA, start_KA[:, :1], start_KA[:, :1]).float()

    def _seen(self, observation_KO: Tensor) -> Tensor:
        return self.normal(observation_KO).to(next(self.flow.parameters()).dtype)


@dataclass(frozen=True, kw_only=True)
class JointFlow(AbstractBoundedSpec):
    """What ``agents`` agents do at once, drawn by one flow in ``flow_steps`` steps, whose network couples them by attention behind
    each hidden layer (CoFlow, arXiv:2605.01457): on ``observations`` inputs with ``actions`` actions in [-``bound``, ``bound``], those
    of all agents one after another, or with the weights saved in the directory ``model``.

    ``averaged``: the network is told how far a step goes, so that few are enough. ``flow_steps`` and ``alone`` may differ where a
    trained policy is evaluated. ``alone``: nobody draws for all; each agent draws for itself what all might do, and does its own part.

    - ``coupled`` false: independent agents, of one set of weights.
    - ``averaged`` false: an ordinary flow in Euler steps.
    - ``agents`` = 1: a flow of one agent, and its coupling one with itself.

    Agents of one set of weights that observe the same differ by their noise alone. It has no log-probability, so only updates that need
    none take it. Published: plans of observations from a U-Net that couples at each skip, gates that see features and time, returns to
    aim at, and actions by inverse dynamics; here the actions themselves, plain networks, and no aim.

    Confidence: partial.
    """

    family: ClassVar[Family] = NO_DENSITY

    agents: int = 2
    coupled: bool = True
    averaged: bool = True
    flow_steps: int = 1
    alone: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("agents", "flow_steps"):
            if vars(self)[name] < 1:
                raise ValueError(f"JointFlow.{name} is {vars(self)[name]}; it is at least 1")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield from without_density(self, whole)
        for name in ("observations", "actions"):
            if (count := vars(self)[name]) % self.agents:
                yield Refusal(
                    f"{self.agents} agents do not share {count} {name} evenly: policy.agents must divide what the environment shows "
                    "and takes, those of all agents one after another"
                )

    def load(self, seed: int = 0) -> JointFlowPolicy:
        names = ("observations", "actions", "bound", "normalize", "agents", "coupled", "averaged")
        own = {name: vars(self)[name] for name in names} | {"hidden": list(self.hidden)}
        sizes = config_of(self, own, "coflow") if self.model else own
        for name in ("agents", "averaged"):
            if sizes[name] != own[name]:
                raise ValueError(
                    f"{self.model} was saved with {name} {sizes[name]}, and policy.{name} is {own[name]}: set the same"
                )
        policy = JointFlowPolicy(self, sizes, seed)
        if self.model:
            read_weights(policy, self.model)
        return policy.eval()
