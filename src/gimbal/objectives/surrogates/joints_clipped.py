"""The clipped surrogate with a ratio for each group of joints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.objectives.base import UPDATE, AbstractObjective
from gimbal.objectives.surrogates.clipped_ratio import check_bounds, clip_pessimistically, k3_of
from gimbal.records import Terms, TrainBatch

EACH, EACH_BEFORE = "logprob_NSA", "proximal/logprob_NSA"  # of each number of an action: now, and as the update began


@dataclass(frozen=True, kw_only=True)
class JointsClipped(AbstractObjective):
    """A separate clip for each group of an action's numbers, as of a body's limbs (Thor, arXiv:2510.26280).

    loss = -1/G sum_g min(r_g A, clip(r_g, 1 - clip_low, 1 + clip_high) A),   r_g = exp(sum_{j in g} (logprob_j - proximal_j))

    ``groups`` are the places of an action's numbers, each in one of them; () is each by itself. One advantage is for all. A group whose
    ratio has left the bounds stops alone, where a joint ratio stops all of them, or lets a group go on whose change another has undone.

    - one group: ClippedRatio.
    - one number an action: the same.
    - ``clip_low`` = ``clip_high`` = inf: -1/G sum_g r_g A.
    - at logprob = proximal its gradient is 1/G of that of Reinforce.

    Metrics: the shares clipped on each side, the mean over groups; ``clip_ratio/joint``, the share of actions that the same bounds
    would clip by their joint ratio; ``kl/old``. Its policy draws an action's numbers independently (``Gaussian``), and the anchor is
    the policy as the update begins.

    Confidence: partial; from the card of the paper, whose form of the ratio is not public.
    """

    consumes: ClassVar[frozenset[str]] = frozenset({UPDATE})
    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", EACH, EACH_BEFORE})

    groups: tuple[tuple[int, ...], ...] = ()
    clip_low: float = 0.2
    clip_high: float = 0.2

    def __post_init__(self) -> None:
        check_bounds(self, self.clip_low, self.clip_high)
        named = [place for group in self.groups for place in group]
        if sorted(named) != list(range(len(named))) or not all(self.groups):
            raise ValueError(
                f"JointsClipped.groups is {self.groups}; each place of an action's numbers, from 0 on, is in one group, as in "
                "((0, 1, 2), (3, 4, 5))"
            )

    def _held(self, actions: int) -> tuple[tuple[int, ...], ...]:
        if self.groups and sum(map(len, self.groups)) != actions:
            raise ValueError(self._unlike(actions))
        return self.groups or tuple((place,) for place in range(actions))

    def _unlike(self, actions: int) -> str:
        return (
            f"JointsClipped.groups has {sum(map(len, self.groups))} places, and an action has {actions} numbers: name each of them "
            "once, or set objective.groups=() for each by itself"
        )

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        now_NSA, before_NSA = (batch.column(name, self) for name in (EACH, EACH_BEFORE))
        gap_NSA = ops.log_ratio(now_NSA, before_NSA).where(batch.mask_NS[..., None], 0)
        advantage_NS, found = batch.column("advantage_NS", self), []
        groups = self._held(gap_NSA.shape[-1])
        for group in groups:
            ratio_NS = gap_NSA[..., list(group)].sum(-1).exp()
            found.append(clip_pessimistically(ratio_NS, advantage_NS, self.clip_low, self.clip_high))
        surrogate_NS = torch.stack([surrogate_NS for surrogate_NS, _ in found]).mean(0)
        metrics = {name: torch.stack([clipped[name] for _, clipped in found]).mean(0) for name in found[0][1]}
        joint_NS = gap_NSA.sum(-1).detach()
        clipped = clip_pessimistically(joint_NS.exp(), advantage_NS, self.clip_low, self.clip_high)[1]
        joint = {"clip_ratio/joint": torch.stack([*clipped.values()]).sum(0), "kl/old": k3_of(joint_NS)}
        return Terms(-surrogate_NS, metrics | joint)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        actions = vars(whole.run.policy).get("actions")
        if self.groups and isinstance(actions, int) and sum(map(len, self.groups)) != actions:
            yield Refusal(self._unlike(actions))
        anchor = vars(whole.run.learns).get("anchor")
        if type(anchor).__name__ != "Recompute":
            yield Refusal(
                f"JointsClipped reads the log-probabilities of an action's numbers as the update begins, and {type(anchor).__name__} "
                "is another anchor: set anchor='Recompute()'"
            )
