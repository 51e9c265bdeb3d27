"""Pictures of which a part is shown, and the rest is to be drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gimbal.composition import SHOWS
from gimbal.environments.base import AbstractGenerated
from gimbal.ops import philox
from gimbal.ops.shown import coarse, half, hole, shown
from gimbal.records import Task
from gimbal.rewards.digits import SIDE, digits

Kind = Literal["fill", "extend", "remove", "refine"]
KEPT_OUT = 5  # every fifth digit is for evaluation: gimbal-digits-shown was not trained on it
HOLE = 4  # pixels a side


@dataclass(frozen=True, kw_only=True)
class ShownPictures(AbstractGenerated):
    """Digits of which a part is shown, in four kinds of task for one model.

    ``fill``: all but a square of 4x4 pixels is shown, and the class is told. ``extend``: one half is shown, and the class told.
    ``remove``: shown as in ``fill``, without a class; the square shall be background. ``refine``: the means over ``block`` x ``block``
    pixels are shown, without a class.

    ``size`` tasks, which take ``kinds`` in turn (a kind that stands there twice is asked twice as often), each of a digit and a place
    drawn by ``seed``. ``kept_out`` takes the digits that gimbal-digits-shown was not trained on. The column ``given`` is what the
    network sees: the pixels, 0 where they are not known, then how much of each is known. Rewards find ``kind``, ``label``, and the
    whole ``picture`` beside it.
    """

    kinds: tuple[Kind, ...] = ("fill", "fill", "extend", "remove")
    block: int = 2
    size: int = 100_000
    seed: int = 0
    kept_out: bool = False

    def __post_init__(self) -> None:
        if not self.kinds or not set(self.kinds) <= set(get_args(Kind)):
            raise ValueError(f"ShownPictures.kinds is {self.kinds}; choose among {', '.join(get_args(Kind))}")
        if self.size < 1 or self.block not in (2, 4):
            raise ValueError(
                f"ShownPictures.size is {self.size} and block {self.block}; size is at least 1, block 2 or 4"
            )

    def effects(self) -> frozenset[str]:
        return super().effects() | {SHOWS}

    def task(self, index: int) -> Task:
        kind, places = self.kinds[index % len(self.kinds)], philox("shown", self.seed, index)
        x_KD, label_K = digits()
        own = [row for row in range(len(x_KD)) if (row % KEPT_OUT == 0) == self.kept_out]
        row = own[int(places.integers(len(own)))]
        x_D, label = x_KD[row].reshape(1, SIDE, SIDE), int(label_K[row])
        if kind == "refine":
            given_D = coarse(x_D, self.block)
        else:
            given_D = shown(x_D, half(places, SIDE) if kind == "extend" else hole(places, SIDE, HOLE))
        named = kind in ("fill", "extend")
        return Task(
            id=f"shown-{self.seed}-{index}",
            prompt=f"{kind}: class {label}" if named else kind,
            source="shown pictures",
            columns={
                "kind": kind,
                "given": tuple(given_D.flatten().tolist()),
                "picture": tuple(x_D.flatten().tolist()),
            }
            | ({"label": label} if named else {}),
        )
