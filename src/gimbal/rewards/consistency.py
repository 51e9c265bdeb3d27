"""Judges that are shown two finished samples of one episode and say whether they belong together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import STREAMS, Composition, Refusal, Verdict
from gimbal.config.own import told
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.digits import images, logits
from gimbal.rewards.samples import finished, making


@dataclass(frozen=True, kw_only=True)
class AbstractConsistency(AbstractReward, ABC):
    """How well the samples of an episode belong together, by a judge of pairs: ``same`` is P(two samples belong together), in torch.

    The score of an episode of B samples, as ``Streamed`` draws them, is the mean over its pairs (PaCo-RL, arXiv:2512.04784):
    R = 2 / (B (B - 1)) sum over j < k of P(same | x_j, x_k). Nobody says what the samples should be, only that they go together, so
    a policy may learn to draw what is easy to repeat: keep a reward of the task beside it.

    - two samples: P of the one pair.
    - a judge that always says yes: 1 for all, so no advantage.

    Published: the judge is a vision-language model that was trained on ranked pairs, P its probability of the word yes.

    Confidence: partial. The judge's training is not here.
    """

    is_method: ClassVar[bool] = True

    @property
    def decides(self) -> bool:
        return False

    @abstractmethod
    def same(self, x_PD: Float[Tensor, "P D"], other_PD: Float[Tensor, "P D"]) -> Float[Tensor, " P"]:
        """P(the two belong together) of P pairs of flat samples."""

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(STREAMS):
            yield Refusal(
                f"{type(self).__name__} compares the samples of an episode with each other, and an episode of this workflow has one: "
                "workflow='Streamed()' policy.model=gimbal-digits-stream"
            )

    def __call__(self, group: Group) -> list[float | None]:
        scores: list[float | None] = []
        for episode in group.episodes:
            x_BD = finished(making(episode))
            one_P, other_P = torch.triu_indices(len(x_BD), len(x_BD), offset=1)
            if not len(one_P):
                raise ValueError(
                    f"{type(self).__name__} compares the samples of an episode with each other, and that of task {episode.task.id} "
                    "has one: workflow='Streamed()'"
                )
            with torch.no_grad():
                same_P = self.same(x_BD[one_P], x_BD[other_P])
            if not isinstance(same_P, Tensor) or same_P.shape != one_P.shape:
                raise ValueError(
                    f"{type(self).__name__}.same returned {told(same_P)}; it must return a tensor of one probability for each pair, "
                    f"here {list(one_P.shape)}"
                )
            scores.append(float(same_P.mean()))
        return scores


@dataclass(frozen=True, kw_only=True)
class DigitConsistency(AbstractConsistency):
    """How likely the pictures of a stream are the same digit, whichever (after PaCo-RL, arXiv:2512.04784; use with Streamed).

    The mean over pairs of pictures of P(same | x, x') = sum over digits c of p_c(x) p_c(x'), p of the linear classifier of
    ``DigitClass``.

    - pictures that the classifier is sure are one digit: 1; of different digits: 0.
    - a classifier that knows nothing: 1/10.

    Confidence: partial. Published: a vision-language model says how likely a pair belongs together.
    """

    name: str = "same"

    def same(self, x_PD: Float[Tensor, "P D"], other_PD: Float[Tensor, "P D"]) -> Float[Tensor, " P"]:
        p_PC, other_PC = (logits(images(one_PD)).softmax(-1) for one_PD in (x_PD, other_PD))
        return (p_PC * other_PC).sum(-1)
