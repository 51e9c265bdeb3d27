"""How many tokens a forward pass of the network writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

from torch import Tensor

from gimbal.records import Group
from gimbal.rewards.base import AbstractReward


@runtime_checkable
class _Filled(Protocol):
    """What a rollout's decisions must hold: the tokens of its text, and its forward passes."""

    tokens_N: Tensor
    passes_N: Tensor


@dataclass(frozen=True, kw_only=True)
class TokensPerPass(AbstractReward):
    """Tokens of the text, up to its end, divided by the forward passes that wrote it (LightningRL, arXiv:2603.13319): for policies that
    write several tokens in a pass (MaskedLM). Weight 0 only reports it.
    """

    is_method: ClassVar[bool] = True

    name: str = "speed"

    @property
    def decides(self) -> bool:
        return False

    def __call__(self, group: Group) -> list[float | None]:
        return [self._of(rollout.decisions) for rollout in group.rollouts]

    def _of(self, decisions: object) -> float:
        if not isinstance(decisions, _Filled):
            raise ValueError(
                f"TokensPerPass counts the forward passes of policies that fill in masked text (policy=MaskedLM()), and "
                f"{type(decisions).__name__} has none: take it out of rewards"
            )
        return float(decisions.tokens_N.sum() / decisions.passes_N.sum())
