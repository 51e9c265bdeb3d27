"""Rewards for digits 0 to 9 of 8x8 pixels: by classifiers trained here, and by distance from real ones.

The data are scikit-learn's 1,797 digits, pixels from -1 to 1. Samples of 1, 2 or 4 pixels a side are enlarged. Even rows train the
reward models, odd rows judge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.records import Rollout
from gimbal.rewards.samples import OTHER, AbstractSampleReward, finished

NEIGHBOURS = 5
SIDE = 8


@cache
def digits() -> tuple[Float[Tensor, "K 64"], Int[Tensor, " K"]]:
    """All images, flat, from -1 to 1, and their labels."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ValueError("digits are scikit-learn's: pip install -e '.[denoising]' in the clone") from error
    data, target = load_digits(return_X_y=True)
    return torch.tensor(data, dtype=torch.float32) / 8 - 1, torch.tensor(target)


@cache
def _linear() -> tuple[Float[Tensor, "10 64"], Float[Tensor, " 10"]]:
    """Weights and biases of a softmax on the even rows: 400 full steps of gradient descent with momentum, a tenth of a second."""
    x_KD, label_K = (rows[::2] for rows in digits())
    layer = torch.nn.Linear(x_KD.shape[1], 10)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    with torch.enable_grad():
        for _ in range(400):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(layer(x_KD), label_K).backward()
            optimizer.step()
    return layer.weight.detach(), layer.bias.detach()


def images(flat_KD: Float[Tensor, "K D"]) -> Float[Tensor, "K 64"]:
    """The same samples, those of fewer pixels enlarged. ValueError where they are of another size."""
    if why := misfit(flat_KD.shape[1]):
        raise ValueError(why)
    side = math.isqrt(flat_KD.shape[1])
    if side == SIDE:
        return flat_KD
    small_KHW = flat_KD.reshape(-1, side, side)
    return small_KHW.repeat_interleave(SIDE // side, 1).repeat_interleave(SIDE // side, 2).flatten(1)


def misfit(numbers: int) -> str:
    """Why samples of so many numbers are no digits, and what to set; "" if they may be."""
    if numbers in (1, 4, 16, SIDE * SIDE):  # fewer pixels are enlarged
        return ""
    return f"rewards of digits look at samples of 8x8 pixels in one channel, and these have {numbers} numbers: {OTHER}"


def logits(x_ND: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
    """Of the ten digits, by a linear softmax that is trained on the even rows."""
    weight_CD, bias_C = (part.to(x_ND.device) for part in _linear())
    return x_ND @ weight_CD.T + bias_C


def _classes(wanted: Tensor, name: str) -> None:
    if (wanted < 0).any():
        raise ValueError(
            f"reward {name} reads the class of the task, which has none: set wanted, or give tasks a class (tasks.labels, or a column "
            "label in rows of your own)"
        )


class AbstractDigitReward(AbstractSampleReward):
    """Looks at digits."""

    def misfit(self, numbers: int) -> str:
        return misfit(numbers)


@dataclass(frozen=True, kw_only=True)
class DigitClass(AbstractDigitReward):
    """How much a sample looks like the digit ``wanted``; -1 asks for the class of its task (column ``label``).

    ``by`` "linear" is a softmax trained on the even rows: ``scale`` "log" is log p, "probability" p, "hit" 1 where no other class is
    more likely; "logit" is the logit, which has no upper bound and so can be hacked: images unlike any digit earn most. ``by``
    "neighbours" is the vote of the five nearest odd rows, another judge on other data: a gain there too is not a hack of the first.
    """

    wanted: int = -1
    by: Literal["linear", "neighbours"] = "linear"
    scale: Literal["logit", "log", "probability", "hit"] = "log"
    name: str = "digit"

    def __post_init__(self) -> None:
        if not -1 <= self.wanted <= 9:
            raise ValueError(f"DigitClass.wanted is {self.wanted}; digits are 0 to 9, and -1 is the class of the task")
        if self.by == "neighbours" and self.scale in ("log", "logit"):
            raise ValueError(
                "DigitClass by neighbours counts votes, whose log is often -inf: set scale=hit or probability"
            )

    @property
    def decides(self) -> bool:
        return self.scale != "logit"

    @property
    def flat(self) -> str:
        if self.by == "neighbours":
            return "it counts votes, which hardly any change of a sample changes: set by=linear"
        return (
            "a hit is 0 or 1, which hardly any change of a sample changes: set scale=log" if self.scale == "hit" else ""
        )

    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        x_ND = images(x_ND)
        wanted_N1 = (label_N if self.wanted < 0 else torch.full_like(label_N, self.wanted))[:, None]
        _classes(wanted_N1, self.name)
        if self.by == "linear":
            logit_NC = logits(x_ND)
            if self.scale == "logit":
                return logit_NC.gather(1, wanted_N1)[:, 0]
            log_NC = logit_NC.log_softmax(-1)
        else:
            data_KD, label_K = (rows[1::2].to(x_ND.device) for rows in digits())
            near = torch.cdist(x_ND, data_KD).topk(NEIGHBOURS, largest=False).indices
            log_NC = torch.nn.functional.one_hot(label_K[near], 10).float().mean(1).log()
        if self.scale == "hit":
            return (log_NC.argmax(-1) == wanted_N1[:, 0]).float()
        return (log_NC if self.scale == "log" else log_NC.exp()).gather(1, wanted_N1)[:, 0]


@dataclass(frozen=True, kw_only=True)
class DigitDistance(AbstractDigitReward):
    """How far a sample is from the nearest real digit (Euclidean, pixels from -1 to 1): a measure, not a goal, so its weight is 0.

    Over many samples it reports ``distance``, the mean; and ``coverage``, the share of the real digits ``wanted`` (-1: all) that have a
    sample nearer than their own fifth neighbour among them (Naeem et al., arXiv:2002.09797). A hacked proxy shows in the distance, a
    policy that repeats one digit shows in the coverage. Real rows are 2.2 from the nearest of the other half.
    """

    wanted: int = -1
    name: str = "data"
    weight: float = 0.0

    @property
    def decides(self) -> bool:
        return False

    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return torch.cdist(images(x_ND), digits()[0].to(x_ND.device)).amin(-1)

    def figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        data_KD, label_K = digits()
        x_ND = images(finished(rollouts))
        real_KD = data_KD if self.wanted < 0 else data_KD[label_K == self.wanted]
        radius_K = torch.cdist(real_KD, real_KD).kthvalue(NEIGHBOURS + 1).values  # the first is the row itself
        covered_K = torch.cdist(real_KD, x_ND).amin(-1) < radius_K
        return {
            "distance": float(torch.cdist(x_ND, data_KD).amin(-1).mean()),
            "coverage": float(covered_K.float().mean()),
        }


@dataclass(frozen=True, kw_only=True)
class DigitLikeness(AbstractDigitReward):
    """How near a sample is to a real digit ``wanted`` in half of the data; ``rows`` selects the half, "even" or "odd". ``wanted`` -1
    asks for the class of its task (column ``label``).

    ``scale`` "nearness" is minus the distance to the nearest; "real" is 1 if that distance is at most that of 19 of 20 real digits
    ``wanted`` of the other half, so a digit must also look like one. Both can use averaged ``blocks`` of pixels (1: the pixels
    themselves; 2: 4x4 values), a coarser and cheaper judge.
    """

    wanted: int = -1
    rows: Literal["even", "odd"] = "odd"
    scale: Literal["nearness", "real"] = "real"
    blocks: Literal[1, 2, 4] = 1
    name: str = "likeness"

    def __post_init__(self) -> None:
        if not -1 <= self.wanted <= 9:
            raise ValueError(
                f"DigitLikeness.wanted is {self.wanted}; digits are 0 to 9, and -1 is the class of the task"
            )

    @property
    def flat(self) -> str:
        return (
            "real is 0 or 1, which hardly any change of a sample changes: set scale=nearness"
            if self.scale == "real"
            else ""
        )

    def of_samples(self, x_ND: Float[Tensor, "N D"], label_N: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        x_ND = self._coarse(images(x_ND))
        wanted_N = label_N if self.wanted < 0 else torch.full_like(label_N, self.wanted)
        _classes(wanted_N, self.name)
        score_N = x_ND.new_zeros(len(x_ND))
        for wanted in wanted_N.unique().tolist():
            own_KD, limit = (part.to(x_ND.device) for part in self._judge(wanted))
            near_N = torch.cdist(x_ND, own_KD).amin(-1)
            own_N = (near_N <= limit).float() if self.scale == "real" else -near_N
            score_N = own_N.where(wanted_N == wanted, score_N)
        return score_N

    def _judge(self, wanted: int) -> tuple[Float[Tensor, "K D"], Float[Tensor, ""]]:
        """The real digits of its half, and the distances of the other half from them."""
        half, (data_KD, label_K) = int(self.rows == "odd"), digits()
        own_KD, other_KD = (self._coarse(data_KD[h::2][label_K[h::2] == wanted]) for h in (half, 1 - half))
        return own_KD, torch.cdist(other_KD, own_KD).amin(-1).quantile(0.95)

    def _coarse(self, x_KD: Float[Tensor, "K 64"]) -> Float[Tensor, "K D"]:
        image_KD = x_KD.reshape(-1, 1, SIDE, SIDE)
        return torch.nn.functional.avg_pool2d(image_KD, self.blocks).flatten(1)
