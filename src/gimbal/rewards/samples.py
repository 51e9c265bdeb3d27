"""Rewards of finished samples, as denoising policies make them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.config.own import told
from gimbal.ops.png import png
from gimbal.ops.scales import pictured
from gimbal.records import Episode, Group, Rollout
from gimbal.rewards.base import AbstractReward

NO_LABEL = -1
# For samples that a reward does not know how to look at.
OTHER = "set reward=FILE.py:FUNCTION, which gets rollout.decisions.sample_ND, or rewards=[] where the update reads none"


@runtime_checkable
class _Made(Protocol):
    """What a rollout's decisions must hold: the finished samples."""

    sample_ND: Tensor


@runtime_checkable
class _Spelled(Protocol):
    """Or in text, whose last letters are the pixels of its finest scale (ops.scales)."""

    last_N: Tensor


def finished(rollouts: Sequence[Rollout]) -> Float[Tensor, "K D"]:
    """The finished samples, flat. ValueError where there are none, or of several sizes."""
    flat = [x for rollout in rollouts if (x := _finished(rollout)) is not None]
    if len(flat) < len(rollouts) or len({len(x) for x in flat}) > 1:
        raise ValueError(
            "this reward looks at finished samples of one size, as policies make them that denoise (policy=Denoiser()) or draw scale "
            "after scale (policy=MaskedLM(model=gimbal-scales)), and these rollouts have none"
        )
    return torch.stack(flat).float()


def _finished(rollout: Rollout) -> Float[Tensor, " D"] | None:
    made = rollout.decisions
    if isinstance(made, _Made):
        return made.sample_ND.flatten()
    return pictured(rollout.text[-int(made.last_N[0]) :]) if isinstance(made, _Spelled) else None


def making(episode: Episode) -> list[Rollout]:
    """The rows of an episode that made a sample; all of them where none did."""
    return [row for row in episode.rows if isinstance(row.decisions, _Made)] or list(episode.rows)


def pictures(rollouts: Sequence[Rollout]) -> list[str]:
    """The finished samples as data: URLs of PNGs, grey or in colour. ValueError where they are no pictures."""
    return [png(_pixels(rollout)) for rollout in rollouts]


def _pixels(rollout: Rollout) -> Float[Tensor, "1 C H W"]:
    made, flat = rollout.decisions, _finished(rollout)
    side = 0 if flat is None else math.isqrt(len(flat))
    image = made.sample_ND[:1] if isinstance(made, _Made) else flat
    if image is not None and image.ndim == 1 and side * side == len(image):  # of a picture in scales
        image = image.reshape(1, 1, side, side)
    if image is None or image.ndim != 4 or image.shape[1] not in (1, 3):
        raise ValueError(
            "a template shows {picture}, and these rollouts made none: policies do that denoise pictures (policy=Denoiser()) or draw "
            "scale after scale (policy=MaskedLM(model=gimbal-scales)); else leave {picture} out of the template"
        )
    return image


@dataclass(frozen=True, kw_only=True)
class AbstractSampleReward(AbstractReward, ABC):
    """A reward that judges each finished sample alone. ``of_samples`` is that judgement in torch, and the scores are its values, so an
    update may follow its gradient with respect to the sample (RewardGradient). The score of a stream is the mean over its blocks; rows
    of an episode that made no sample, such as a plan in words, are not judged.
    """

    @abstractmethod
    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """The scores of flat samples; ``label_N`` are the classes that were asked for, -1 where none was."""

    @property
    def flat(self) -> str:
        """Why its gradient teaches nothing, such as a score that is constant nearly everywhere; "" where it teaches."""
        return ""

    def misfit(self, numbers: int) -> str:
        """Why it cannot judge samples of so many numbers, and what to set instead; "" if it can."""
        return ""

    def __call__(self, group: Group) -> list[float | None]:
        label = group.task.columns.get("label", NO_LABEL)
        made = [making(episode) for episode in group.episodes]
        rows = [row for each in made for row in each]
        with torch.no_grad():
            score_N = self.of_samples(finished(rows), torch.full((len(rows),), int(label)))
        if not isinstance(score_N, Tensor) or score_N.shape != (len(rows),):
            raise ValueError(
                f"{type(self).__name__}.of_samples returned {told(score_N)}; it must return a tensor of one score for each sample, "
                f"here {[len(rows)]}"
            )
        return [float(own_B.mean()) for own_B in score_N.split([len(each) for each in made])]
