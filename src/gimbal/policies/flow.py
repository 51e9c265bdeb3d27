"""Flows: a velocity that leads from noise to actions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.policies.base import AbstractPolicySpec
from gimbal.policies.control import P, read_config, read_weights, relu_mlp, saved, sizes_of

FLOW = "flow."  # what the flow's weights are called in a policy that was saved


class Velocity(nn.Module):
    """v(o, x, t): the way from noise, at t = 0, to actions in units of their bound, at t = 1."""

    def __init__(self, observations: int, actions: int, hidden: tuple[int, ...], seed: int) -> None:
        super().__init__()
        self.net = relu_mlp([observations + actions + 1, *hidden, actions], seed)

    def forward(
        self, observation_KO: Float[Tensor, "K O"], x_KA: Float[Tensor, "K A"], time_K1: Float[Tensor, "K 1"]
    ) -> Float[Tensor, "K A"]:
        return self.net(torch.cat([observation_KO, x_KA, time_K1], dim=-1))

    def end(
        self, observation_KO: Float[Tensor, "K O"], noise_KA: Float[Tensor, "K A"], steps: int
    ) -> Float[Tensor, "K A"]:
        """Where it leads from this noise, in Euler steps of one length, within the bound."""
        return self.follow(observation_KO, noise_KA, steps).clamp(-1, 1)

    def follow(
        self, observation_KO: Float[Tensor, "K O"], noise_KA: Float[Tensor, "K A"], steps: int
    ) -> Float[Tensor, "K A"]:
        """The same, wherever that is."""
        return followed(self, observation_KO, noise_KA, steps)

    def apart(
        self,
        observation_KO: Float[Tensor, "K O"],
        share_KA: Float[Tensor, "K A"],
        start_KA: Float[Tensor, "K A"],
        time_K1: Float[Tensor, "K 1"],
    ) -> Float[Tensor, " K"]:
        """Flow matching: mean_A (v(o, x_t, t) - (a - x_0))^2 on the straight way x_t = (1 - t) x_0 + t a to an action in units of the
        bound."""
        way_KA = share_KA - start_KA
        return (self(observation_KO, start_KA + time_K1 * way_KA, time_K1) - way_KA).square().mean(-1)


def followed(
    velocity: Callable[[Tensor, Tensor, Tensor], Tensor],
    observation_KO: Float[Tensor, "K O"],
    noise_KA: Float[Tensor, "K A"],
    steps: int,
) -> Float[Tensor, "K A"]:
    """Where any velocity leads from this noise, in Euler steps of one length."""
    x_KA = noise_KA
    for number in range(steps):
        x_KA = x_KA + velocity(observation_KO, x_KA, torch.full_like(x_KA[:, :1], number / steps)) / steps
    return x_KA


def hidden_of(directory: str, field: str, spec: AbstractPolicySpec) -> list[int]:
    """The sizes of the flow that ``field`` names, or ValueError where it is none of this policy's environment."""
    held = read_config(directory, field)
    if not {"edits", "hidden"} <= held.keys():
        raise ValueError(f"{directory} holds no flow: {field} is a directory that a run of idql or expo saved")
    own = {name: vars(spec)[name] for name in ("observations", "actions", "bound")} | {"normalize": False}
    for name, wanted in own.items():
        if held.get(name) != wanted:
            raise ValueError(
                f"the flow in {directory} has {name} {held.get(name)}, and in this environment it must be {wanted}: train one "
                "here, as gimbal train idql"
            )
    return held["hidden"]


def on_flow(kind: Callable[..., P], spec: AbstractPolicySpec, seed: int, *, without: list[int] | None) -> P:
    """A policy on the frozen flow of the directory ``spec.flow``, or the one saved in ``spec.model``. ``without``: the sizes of a flow
    where none is named; None: there is none."""
    sizes = sizes_of(spec)
    model, flow = sizes.pop("model"), sizes.pop("flow")
    if model:
        return saved(kind, model, seed)
    policy = kind(**sizes, flow_hidden=hidden_of(flow, "policy.flow", spec) if flow else without, seed=seed)
    if flow:
        part = policy.flow
        assert isinstance(part, nn.Module), kind
        read_weights(part, flow, FLOW)
    return policy.eval()
