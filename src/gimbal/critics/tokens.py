"""Values of texts: a head on the policy's hidden states, or its own transformer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.critics.base import AbstractCriticSpec
from gimbal.critics.members import AbstractMembers, horizons
from gimbal.ops import stable_hash
from gimbal.policies.control import mlp
from gimbal.policies.layout import Sharing, laid
from gimbal.policies.token import CausalLM, Tokens
from gimbal.records import AbstractDecisions

GAIN = 0.01  # of the last layer: a fresh critic says nearly 0 of every state


class HiddenValueNetwork(AbstractMembers):
    """V(s) = scale * head(h(s)), h the policy's last hidden state, which decision s is sampled from. No value after the end."""

    reads: ClassVar[frozenset[str]] = frozenset({"hidden_NSH"})

    def __init__(self, spec: HiddenValue, seed: int) -> None:
        super().__init__()
        self.spec = spec
        self.head = mlp([spec.width, *spec.hidden, spec.heads], GAIN, seed)

    def members(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S M"], Float[Tensor, "N M"]]:
        assert isinstance(decisions, Tokens), type(decisions)
        assert hidden_NSH is not None, "a critic that reads hidden_NSH is given it"
        if hidden_NSH.shape[-1] != self.spec.width:
            raise ValueError(
                f"the policy's hidden states have {hidden_NSH.shape[-1]} numbers, and HiddenValue.width is {self.spec.width}: "
                f"set critic.width={hidden_NSH.shape[-1]}"
            )
        hidden_NSH = hidden_NSH if self.spec.trunk_gradient else hidden_NSH.detach()
        value_NSM = self.spec.scale * self.head(hidden_NSH.to(_dtype(self.head))).float()
        return torch.where(_real_NS(decisions)[..., None], value_NSM, 0), _nothing(value_NSM)


@dataclass(frozen=True, kw_only=True)
class HiddenValue(AbstractCriticSpec):
    """A value head on the policy's last hidden states, ``width`` numbers each; it needs no forward pass of its own.

    ``trunk_gradient`` also sends the value loss into the policy's weights; without it the states are only features. ``hidden`` are
    the head's hidden layers; ``scale`` is the size of a typical return. A text truncated by length ends there, as does its score. With
    ``heads`` > 1 each may learn another horizon (MultiHorizonValueLoss); the last one is used.
    """

    width: int = 128
    hidden: tuple[int, ...] = ()
    heads: int = 1
    scale: float = 1.0
    trunk_gradient: bool = False

    def load(self, seed: int) -> HiddenValueNetwork:
        return HiddenValueNetwork(self, stable_hash("critic", seed)).eval()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from horizons(self.heads, whole)
        policy = whole.run.policy
        if isinstance(policy, CausalLM) and policy.width not in (None, self.width):
            yield Refusal(
                f"the hidden states of {policy.model} have {policy.width} numbers, and HiddenValue.width is {self.width}: leave width "
                f"out, or set critic.width={policy.width}"
            )


class TrunkValueNetwork(AbstractMembers):
    """V(s) = scale * head(h(s)), h the last hidden state of the critic's own transformer."""

    def __init__(self, trunk: Any, spec: TrunkValue, seed: int, *, shares: Sharing | None) -> None:
        super().__init__()
        self.trunk, self.scale, self.shares = trunk, spec.scale, shares
        self.head = mlp([trunk.config.hidden_size, spec.heads], GAIN, seed)

    def members(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S M"], Float[Tensor, "N M"]]:
        assert isinstance(decisions, Tokens), type(decisions)
        layout = laid(decisions.ids_NL, decisions.prompt_N, decisions.length_N, (), self.shares)
        hidden_RLH = self.trunk(**layout.inputs(self.trunk), use_cache=False).last_hidden_state
        hidden_KH = hidden_RLH[layout.row_K, layout.column_K].to(_dtype(self.head))
        value_KM = self.scale * self.head(hidden_KH).float()
        value_NSM = value_KM.new_zeros(*decisions.shape, value_KM.shape[-1])
        value_NSM = value_NSM.index_put(_real_NS(decisions).nonzero(as_tuple=True), value_KM)
        return value_NSM, _nothing(value_NSM)


@dataclass(frozen=True, kw_only=True)
class TrunkValue(AbstractCriticSpec):
    """A value head on its own causal language model, truncated to its first ``layers`` layers (0: all) and trained as a whole.

    ``trunk`` must share the policy's tokenizer; with the same weights, the critic starts with the policy's knowledge of texts.
    """

    trunk: CausalLM = CausalLM()
    layers: int = 0
    heads: int = 1
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.layers < 0:
            raise ValueError(
                f"TrunkValue.layers is {self.layers}; it must be a number of layers that are kept, where 0 is all"
            )

    def load(self, seed: int) -> TrunkValueNetwork:
        stream = stable_hash("critic", seed)
        policy = self.trunk.load(stream)
        trunk = policy.model.base_model
        if self.layers:
            stack = next(child for child in trunk.children() if isinstance(child, nn.ModuleList))
            del stack[self.layers :]
            trunk.config.num_hidden_layers = len(stack)
        return TrunkValueNetwork(trunk, self, stream, shares=policy.shares).eval()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from horizons(self.heads, whole)


def _dtype(head: nn.Module) -> torch.dtype:
    return next(head.parameters()).dtype


def _real_NS(decisions: Tokens) -> Bool[Tensor, "N S"]:
    """False on padding."""
    step_S = torch.arange(decisions.shape[1], device=decisions.length_N.device)
    return step_S < (decisions.length_N - decisions.prompt_N)[:, None]


def _nothing(value_NSM: Float[Tensor, "N S M"]) -> Float[Tensor, "N M"]:
    """The value after the end of a text."""
    return value_NSM.new_zeros(value_NSM.shape[0], value_NSM.shape[2])
