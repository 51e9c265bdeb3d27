"""Only rollouts about which all rewards agree are compared, by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal import ops
from gimbal.advantages.base import AbstractAdvantage, AbstractRewardShaping
from gimbal.advantages.components import components
from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops.chains import longest_chain
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class ChainRanked(AbstractAdvantage):
    """Gives advantages only to rollouts of a group that all rewards rank in the same order (ThinkRL-Edit, arXiv:2601.03467).

    A_i = (u_i - mean u) / (std u + eps) over the group's longest chain of dominance, with u the rank on it (ops.longest_chain; equal
    rewards share a rank); 0 off the chain. ``rewards`` are names, () being all; their weights and scales do not matter.

    - one reward: GroupNormalized of ranks, all rollouts on the chain.
    - no two rollouts comparable: 0, the group teaches nothing.
    - all rewards of a group equal, or a group of one: 0.

    Rollouts off the chain stay in the denominators of means. The share on it shrinks fast as rewards are added: ``chain_frac``.

    Confidence: partial; from the paper: only consistent chains are compared; ours: how a chain is found, and advantages by rank.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"group_N"})
    per_episode: ClassVar[bool] = True
    names_rewards: ClassVar[tuple[str, ...]] = ("rewards",)

    rewards: tuple[str, ...] = ()
    ddof: int = 1
    eps: float = 1e-6

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        rank_N, group_N = self._rank_N(batch), batch.column("group_N", self)
        value_N = ops.group_normalised(rank_N.double(), group_N, ddof=self.ddof, eps=self.eps, counted_N=rank_N >= 0)
        return value_N.float()[:, None] * batch.mask_NS

    def report(self, batch: TrainBatch) -> Mapping[str, float]:
        return {"chain_frac": float((self._rank_N(batch) >= 0).float().mean())}

    def _rank_N(self, batch: TrainBatch) -> Int[Tensor, " N"]:
        """Rank on the chain of the own group, or -1."""
        score_NK = torch.stack([*components(batch, self.rewards, self).values()], -1)
        group_N = batch.column("group_N", self)
        rank_N = torch.full_like(group_N, -1)
        for label in torch.unique(group_N):
            member_N = group_N == label
            rank_N[member_N] = longest_chain(score_NK[member_N])
        return rank_N

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(AbstractRewardShaping):
            yield Advice("ChainRanked ranks by the rewards themselves, so reward_shaping does nothing")
