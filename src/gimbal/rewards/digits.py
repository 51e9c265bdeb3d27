"""Rewards for digits 0 to 9 of 8x8 pixels: by classifiers trained here, and by distance from real ones.

The data are scikit-learn's 1,797 digits, pixels from -1 to 1. Even rows train the reward models, odd rows judge.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.records import Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.novelty import finished

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


def images(rollouts: Sequence[Rollout]) -> Float[Tensor, "K 64"]:
    """The finished samples, flat. ValueError where there are none, or of another size."""
    flat_KD = finished(rollouts)
    if flat_KD.shape[1] != SIDE * SIDE:
        raise ValueError(
            f"rewards of digits look at samples of 8x8 pixels in one channel, and these have {flat_KD.shape[1]} numbers"
        )
    return flat_KD


@dataclass(frozen=True, kw_only=True)
class DigitClass(AbstractReward):
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

    def __call__(self, group: Group) -> list[float | None]:
        wanted = self._wanted(group.task.columns)
        x_KD = images(group.rollouts)
        if self.by == "linear":
            weight, bias = _linear()
            logit_KC = x_KD @ weight.T + bias
            if self.scale == "logit":
                return logit_KC[:, wanted].tolist()
            log_KC = logit_KC.log_softmax(-1)
        else:
            data_KD, label_K = (rows[1::2] for rows in digits())
            near = torch.cdist(x_KD, data_KD).topk(NEIGHBOURS, largest=False).indices
            log_KC = torch.nn.functional.one_hot(label_K[near], 10).float().mean(1).log()
        if self.scale == "hit":
            return (log_KC.argmax(-1) == wanted).float().tolist()
        return (log_KC if self.scale == "log" else log_KC.exp())[:, wanted].tolist()

    def _wanted(self, columns: Mapping[str, Any]) -> int:
        if self.wanted >= 0:
            return self.wanted
        if "label" not in columns:
            raise ValueError(
                f"reward {self.name} reads the class of the task, which has none: set wanted, or tasks.labels"
            )
        return int(columns["label"])


@dataclass(frozen=True, kw_only=True)
class DigitDistance(AbstractReward):
    """How far a sample is from the nearest real digit (Euclidean, pixels from -1 to 1): a measure, not a goal, so its weight is 0.

    Over many samples it reports ``distance``, the mean; and ``coverage``, the share of the real digits ``wanted`` (-1: all) that have a
    sample nearer than their own fifth neighbour among them (Naeem et al., arXiv:2002.09797). A hacked proxy shows in the distance, a
    policy that repeats one digit shows in the coverage. Real rows are 2.2 from the nearest of the other half.
    """

    wanted: int = -1
    name: str = "data"
    weight: float = 0.0

    def __call__(self, group: Group) -> list[float | None]:
        return torch.cdist(images(group.rollouts), digits()[0]).amin(-1).tolist()

    def figures(self, rollouts: Sequence[Rollout]) -> dict[str, float]:
        data_KD, label_K = digits()
        x_ND = images(rollouts)
        real_KD = data_KD if self.wanted < 0 else data_KD[label_K == self.wanted]
        radius_K = torch.cdist(real_KD, real_KD).kthvalue(NEIGHBOURS + 1).values  # the first is the row itself
        covered_K = torch.cdist(real_KD, x_ND).amin(-1) < radius_K
        return {
            "distance": float(torch.cdist(x_ND, data_KD).amin(-1).mean()),
            "coverage": float(covered_K.float().mean()),
        }


@dataclass(frozen=True, kw_only=True)
class DigitLikeness(AbstractReward):
    """How near a sample is to a real digit ``wanted`` in half of the data; ``rows`` selects the half, "even" or "odd".

    ``scale`` "nearness" is minus the distance to the nearest; "real" is 1 if that distance is at most that of 19 of 20 real digits
    ``wanted`` of the other half, so a digit must also look like one. Both can use averaged ``blocks`` of pixels (1: the pixels
    themselves; 2: 4x4 values), a coarser and cheaper judge.
    """

    wanted: int
    rows: Literal["even", "odd"] = "odd"
    scale: Literal["nearness", "real"] = "real"
    blocks: Literal[1, 2, 4] = 1
    name: str = "likeness"

    def __post_init__(self) -> None:
        if not 0 <= self.wanted <= 9:
            raise ValueError(f"DigitLikeness.wanted is {self.wanted}; digits are 0 to 9")

    def __call__(self, group: Group) -> list[float | None]:
        own_KD, limit = self._judge()
        near_K = torch.cdist(self._coarse(images(group.rollouts)), own_KD).amin(-1)
        return (near_K <= limit).float().tolist() if self.scale == "real" else (-near_K).tolist()

    def _judge(self) -> tuple[Float[Tensor, "K D"], Float[Tensor, ""]]:
        """The real digits of its half, and the distances of the other half from them."""
        half, (data_KD, label_K) = int(self.rows == "odd"), digits()
        own_KD, other_KD = (self._coarse(data_KD[h::2][label_K[h::2] == self.wanted]) for h in (half, 1 - half))
        return own_KD, torch.cdist(other_KD, own_KD).amin(-1).quantile(0.95)

    def _coarse(self, x_KD: Float[Tensor, "K 64"]) -> Float[Tensor, "K D"]:
        image_KD = x_KD.reshape(-1, 1, SIDE, SIDE)
        return torch.nn.functional.avg_pool2d(image_KD, self.blocks).flatten(1)
