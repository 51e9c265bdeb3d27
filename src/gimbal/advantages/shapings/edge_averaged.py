"""Steps that good and bad rollouts share are neither good nor bad."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.advantages.base import AbstractAdvantage
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class EdgeAveraged(AbstractAdvantage):
    """Averages the advantages of equal steps within a group, so only decisive steps keep theirs (SALT, arXiv:2510.20022).

    A'_t = A_t + mean_e a - a,  with a the step's mean advantage and e all steps of the group with the same decisions after the same
    ``window`` preceding steps. A step is a turn, or one decision with ``level`` "token"; environment output within it counts. Decisions
    are equal by the batch's fact ``label_NS``, or by their content; without either, none are equal.

    - no step twice: A.
    - all rollouts of a group identical, with mean-centred A: 0. So is a first step that the whole group shares.
    - ``window`` = -1, all steps before: only common beginnings merge.
    - only common beginnings merged, ratios of 1, equal weights: the gradient is that of A. Several updates, unequal lengths or a finite
      window give it an effect.
    - ``once``: a rollout that repeats a step counts once for it, with its mean.

    Confidence: partial; from the paper: shared steps are averaged, distinct ones kept; ours: what makes steps equal, and the window.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"advantage_NS", "group_N"})

    window: int = 3
    level: Literal["turn", "token"] = "turn"
    once: bool = False

    def __post_init__(self) -> None:
        if self.window < -1:
            raise ValueError(
                f"EdgeAveraged.window is {self.window}; it counts steps before, 0 or more, or is -1 for all of them"
            )
        if self.level not in ("turn", "token"):
            raise ValueError(f"EdgeAveraged.level is {self.level!r}; choose turn or token")

    def __call__(self, batch: TrainBatch) -> Float[Tensor, "N S"]:
        advantage_NS, group_N = batch.column("advantage_NS", self), batch.column("group_N", self)
        label_NS = self._label_NS(batch)
        if label_NS is None:
            return advantage_NS
        turn_NS = batch.turns_NS if self.level == "turn" else torch.arange(batch.shape[1]).expand(batch.shape)
        edges: dict[Hashable, dict[int, list[list[int]]]] = defaultdict(lambda: defaultdict(list))
        rows = zip(group_N.tolist(), label_NS.tolist(), turn_NS.tolist(), batch.mask_NS.tolist(), strict=True)
        for row, (group, label_S, turn_S, mask_S) in enumerate(rows):
            for key, places in self._steps(label_S, turn_S, mask_S):
                edges[group, key][row].append(places)
        values, change_NS = advantage_NS.double().tolist(), [[0.0] * batch.shape[1] for _ in range(batch.shape[0])]
        for edge in edges.values():
            own = {row: [sum(values[row][s] for s in at) / len(at) for at in steps] for row, steps in edge.items()}
            counted = [[sum(means) / len(means)] if self.once else means for means in own.values()]
            merged = sum(map(sum, counted)) / sum(map(len, counted))
            for row, steps in edge.items():
                for at, mean in zip(steps, own[row], strict=True):
                    for s in at:
                        change_NS[row][s] = merged - mean
        return advantage_NS + advantage_NS.new_tensor(change_NS)

    def _steps(self, label_S: list[int], turn_S: list[int], mask_S: list[bool]) -> Iterator[tuple[Hashable, list[int]]]:
        """(context and content, the counted decisions) of each step of a row that has any, in order."""
        until = max((s for s, counted in enumerate(mask_S) if counted), default=-1) + 1
        steps = [list(places) for _, places in groupby(range(until), key=lambda s: turn_S[s])]
        contents = [tuple(label_S[s] for s in places) for places in steps]
        for number, places in enumerate(steps):
            first = 0 if self.window < 0 else max(0, number - self.window)
            if counted := [s for s in places if mask_S[s]]:
                yield (tuple(contents[first:number]), contents[number]), counted

    def _label_NS(self, batch: TrainBatch) -> Tensor | None:
        if "label_NS" in batch.facts:
            return batch.facts["label_NS"]
        return None if batch.decisions is None else batch.decisions.label_NS
