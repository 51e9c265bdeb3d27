"""A mixture of experts that records which experts chose an action, so that the trainer can use the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.categorical import choose, judge
from gimbal.policies.control import STEPS, AbstractChoicePolicy, mlp, read_config, read_weights


class Mixture(nn.Module):
    """x + sum_e gate_e expert_e(x) over the ``chosen`` experts with the largest router logits; gates are their softmax."""

    def __init__(self, width: int, experts: int, chosen: int, seed: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = mlp([width, experts], 1.0, seed)
        seeds = [stable_hash("expert", seed, number) % 2**63 for number in range(experts)]
        self.experts = nn.ModuleList([mlp([width, width, width], 1.0, own) for own in seeds])

    def forward(
        self, x_KH: Float[Tensor, "K H"], route_KC: Int[Tensor, "K C"] | None
    ) -> tuple[Float[Tensor, "K H"], Int[Tensor, "K C"]]:
        """The output, and the experts it is of: those of ``route_KC`` if given. Gates are of the present logits, with gradient."""
        logit_KE = self.router(x_KH)
        taken_KC = logit_KE.topk(self.chosen, dim=-1).indices if route_KC is None else route_KC
        gate_KC = logit_KE.gather(-1, taken_KC).softmax(-1)
        every_KEH = torch.stack([expert(x_KH) for expert in self.experts], dim=1)
        picked_KCH = every_KEH.gather(1, taken_KC[..., None].expand(-1, -1, x_KH.shape[1]))
        return x_KH + (gate_KC[..., None] * picked_KCH).sum(1), taken_KC


class MixturePolicy(AbstractChoicePolicy):
    """As CategoricalPolicy, with layers of experts. An action is the choice followed by the experts that made it, layer by layer."""

    def __init__(
        self,
        observations: int,
        actions: int,
        width: int,
        layers: int,
        experts: int,
        chosen: int,
        seed: int,
        replay: bool,
    ) -> None:
        super().__init__()
        shape = {"width": width, "layers": layers, "experts": experts, "chosen": chosen}
        self.config = {"observations": observations, "actions": actions, **shape}
        self.replay = replay
        self.inlet = mlp([observations, width], 1.0, seed)
        seeds = [stable_hash("layer", seed, number) % 2**63 for number in range(layers)]
        self.layers = nn.ModuleList([Mixture(width, experts, chosen, own) for own in seeds])
        self.outlet = mlp([width, actions], 0.01, seed)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B A2"], Float[Tensor, " B"]]:
        logits_BV, taken = self._routed(observation_BO, None)
        action_B1, logprob_B = choose(logits_BV, noise_BA, temperature_B)
        return torch.cat([action_B1, *taken], dim=-1), logprob_B

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        routes = action_KA[:, 1:].split(self.config["chosen"], dim=-1) if self.replay else None
        return judge(self._routed(observation_KO, routes)[0], action_KA[:, :1], temperature)

    def _routed(self, observation_KO: Tensor, routes: Sequence[Tensor] | None) -> tuple[Tensor, list[Tensor]]:
        x_KH, taken = self.inlet(observation_KO.to(next(self.parameters()).dtype)).tanh(), []
        for number, layer in enumerate(self.layers):
            x_KH, route_KC = layer(x_KH, None if routes is None else routes[number])
            taken.append(route_KC)
        return self.outlet(x_KH.tanh()).float(), taken


@dataclass(frozen=True, kw_only=True)
class MixtureOfExperts(AbstractPolicySpec):
    """A categorical policy with ``layers`` mixtures of ``experts`` experts, ``chosen`` active; with ``replay`` the trainer uses the
    sampler's experts (rollout routing replay, R3, arXiv:2512.01374).

    - one expert, or all of them chosen: replay changes nothing.
    - sampler and trainer choose the same experts: replay changes nothing.
    - ``replay`` off: each chooses by its own logits, and where they differ the ratio jumps.

    Gates come from the trainer's own logits, so the router learns; under replay the choice of experts itself is not learned. With
    ``chosen`` 1 the one gate is 1 and the router has no gradient. Replay biases the trained policy towards old choices.

    Confidence: verified (secondary); ours: the network, and routing anchors and references the same way.
    """

    family: ClassVar[Family] = STEPS

    observations: int
    actions: int
    width: int = 32
    layers: int = 2
    experts: int = 4
    chosen: int = 2
    replay: bool = True
    model: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.chosen <= self.experts or self.layers < 1:
            raise ValueError(
                f"MixtureOfExperts takes {self.chosen} of {self.experts} experts in {self.layers} layers; take at least 1, and no "
                "more than there are"
            )

    def load(self, seed: int = 0) -> MixturePolicy:
        shape = read_config(self.model) if self.model else self._shape
        policy = MixturePolicy(**shape, seed=seed, replay=self.replay)
        if self.model:
            read_weights(policy, self.model)
        return policy.eval()

    def at(self, directory: Path) -> MixtureOfExperts:
        return replace(self, model=str(directory))

    @property
    def _shape(self) -> dict[str, int]:
        names = ("observations", "actions", "width", "layers", "experts", "chosen")
        return {name: getattr(self, name) for name in names}
