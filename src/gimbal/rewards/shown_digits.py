"""Rewards for digits of which a part was shown (tasks=ShownPictures): programs, and a judge of pairs by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal.records import Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.digits import SIDE, digits, images
from gimbal.rewards.pair_judge import AbstractPairJudge, AskedSamples
from gimbal.rewards.samples import NO_LABEL, finished

Kind = Literal["fill", "extend", "remove"]
KINDS: tuple[Kind, ...] = get_args(Kind)
CRITERIA = ("class", "kept", "empty")
OF: Mapping[Kind, tuple[str, ...]] = {
    "fill": ("class", "kept"),
    "extend": ("class", "kept"),
    "remove": ("empty", "kept"),
}
# What a usable picture may have: of error where it was shown, of ink where it shall be empty, and of distance to a real digit, which is
# that of real ones of one half of the data to the other half.
KEPT, EMPTY, REAL = 0.2, 0.1, 2.2
SCALE = {"class": 0.5, "kept": 0.05, "empty": 0.1}  # by how much a picture has to be better for P = 0.73


def kinds_of(asked: AskedSamples) -> Int[Tensor, " N"]:
    """Which of KINDS each row is: without a class, an object is removed; with half of it shown, a picture is extended."""
    known_N = known(asked).float().mean(-1)
    return torch.where(asked.label_N == NO_LABEL, 2, (known_N < 0.6).long())


def known(asked: AskedSamples) -> Bool[Tensor, "N D"]:
    """The pixels that were shown."""
    if asked.given_ND is None or asked.given_ND.shape[1] != 2 * SIDE * SIDE:
        raise ValueError(
            "this reward judges digits of 8x8 pixels of which a part was shown, and these tasks show none: tasks=ShownPictures()"
        )
    return asked.given_ND[:, SIDE * SIDE :] > 0.5


def shares(x_ND: Float[Tensor, "N 64"], asked: AskedSamples, rows: slice) -> Float[Tensor, "N 3"]:
    """How good each picture is by the program of each of CRITERIA; the class by the nearest of these digits.

    class: minus the distance to the nearest real digit of the class. kept: minus the root of the mean squared error where pixels were
    shown. empty: minus the mean ink, from 0 to 1, where they were not.
    """
    known_ND = known(asked)
    x_KD, label_K = (part[rows].to(x_ND.device) for part in digits())
    apart_NK = torch.cdist(x_ND, x_KD.to(x_ND.dtype)).masked_fill(label_K != asked.label_N[:, None], torch.inf)
    near_N = apart_NK.amin(-1).where(asked.label_N != NO_LABEL, 0)
    assert asked.given_ND is not None
    error_ND = (x_ND - asked.given_ND[:, : SIDE * SIDE]).square() * known_ND
    kept_N = (error_ND.sum(-1) / known_ND.sum(-1).clamp(min=1) + 1e-12).sqrt()
    ink_N = ((x_ND + 1) / 2 * ~known_ND).sum(-1) / (~known_ND).sum(-1).clamp(min=1)
    return -torch.stack([near_N, kept_N, ink_N], -1)


def judged(asked: AskedSamples) -> Bool[Tensor, "N 3"]:
    """Which of CRITERIA are those of each row's task."""
    return torch.tensor([[name in OF[kind] for name in CRITERIA] for kind in KINDS], device=asked.label_N.device)[
        kinds_of(asked)
    ]


@dataclass(frozen=True, kw_only=True)
class UsablePicture(AbstractReward):
    """1 where a picture is usable: it meets all criteria of its task, by programs.

    What was shown is kept (a root mean squared error of at most 0.2, pixels from -1 to 1); and the picture is at most 2.2 from a
    real digit of the class among the odd rows of the data (fill, extend), or the square has at most 0.1 of the ink of a full one
    (remove). ``figures``: the share of each kind of task.
    """

    name: str = "usable"

    def __call__(self, group: Group) -> list[float | None]:
        return [float(x) for x in self._usable(group.rollouts)]

    def figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        usable_N = self._usable(rollouts)
        kinds = [rollout.task.columns["kind"] for rollout in rollouts]
        return {
            kind: float(usable_N[[i for i, own in enumerate(kinds) if own == kind]].mean()) for kind in sorted({*kinds})
        }

    def _usable(self, rollouts: Sequence[Rollout]) -> Float[Tensor, " N"]:
        x_ND = images(finished(rollouts))
        columns = [rollout.task.columns for rollout in rollouts]
        asked = AskedSamples(
            label_N=torch.tensor([int(own.get("label", NO_LABEL)) for own in columns]),
            given_ND=torch.tensor([own["given"] for own in columns])
            if all("given" in own for own in columns)
            else None,
        )
        score_NE = shares(x_ND, asked, slice(1, None, 2))
        right_N = torch.where(asked.label_N == NO_LABEL, score_NE[:, 2] >= -EMPTY, score_NE[:, 0] >= -REAL)
        return (right_N & (score_NE[:, 1] >= -KEPT)).float()


@dataclass(frozen=True, kw_only=True)
class DigitJudge(AbstractPairJudge):
    """One judge of several tasks (OneReward, arXiv:2508.21066): told the task, the class, a criterion and what was shown, it says
    which of two digits is better.

    P(x beats y) = sigmoid((s(x) - s(y)) / scale), s the program of the criterion: minus the distance to the nearest even row of the
    class (scale 0.5), minus the error where pixels were shown (0.05), minus the ink where nothing shall be (0.1). Fills and
    extensions are judged by class and by what they keep, removals by emptiness and by what they keep.

    - x = y: P = 1/2.
    - scale to 0: 1 for the better, as a person would say.

    Published: a large model of language and vision, trained on pairs that people labelled. Here programs answer in its place. A small
    network that learns from pairs was fooled by its gradient within six steps (docs/log.md).

    Confidence: verified; ours: the judge and its criteria.
    """

    name: str = "judge"

    def beats(
        self, x_ND: Float[Tensor, "N D"], rival_ND: Float[Tensor, "N D"], asked: AskedSamples
    ) -> Float[Tensor, "N E"]:
        own_NE, other_NE = (shares(images(each_ND), asked, slice(0, None, 2)) for each_ND in (x_ND, rival_ND))
        beats_NE = ((own_NE - other_NE) / own_NE.new_tensor([SCALE[name] for name in CRITERIA])).sigmoid()
        return beats_NE.where(judged(asked), torch.nan)
