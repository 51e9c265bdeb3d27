"""Random batches as both sides take them: verl's plain tensors, and our ``TrainBatch`` of the same numbers."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gimbal.records import TrainBatch

SEEDS = range(40)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Rows of groups of one to five, decisions with gaps between them (what a tool said), everything in float64."""

    batch: TrainBatch
    logprob_NS: Tensor
    reward_NS: Tensor
    value_NS: Tensor

    @property
    def mask(self) -> Tensor:
        return self.batch.mask_NS.double()

    @property
    def index(self) -> np.ndarray:
        return self.batch.group_N.numpy()

    def column(self, name: str) -> Tensor:
        return self.batch.column(name, self)


def case(seed: int, *, lone: bool = False, gaps: bool = True, apart: float = 0.3, empty: bool = False) -> Case:
    """``lone``: groups of one too; ``gaps``: decisions that do not count between others; ``empty``: a row of which none counts."""
    g = torch.Generator().manual_seed(seed)

    def draw(n: int, s: int) -> Tensor:
        return torch.randn(n, s, generator=g, dtype=torch.float64)

    sizes = torch.randint(1 if lone else 2, 6, (3,), generator=g)
    group_N = torch.repeat_interleave(torch.tensor([7, 3, 11]), sizes)
    n, s = len(group_N), 9
    length_N = torch.randint(1, s + 1, (n,), generator=g)
    mask_NS = torch.arange(s) < length_N[:, None]
    if gaps:
        mask_NS &= (torch.rand(n, s, generator=g) > 0.25) | (torch.arange(s) == 0)
    mask_NS[0, :2] = True  # two decisions at least: a deviation is of more than one
    if empty:
        mask_NS[-1] = False
    score_N = torch.rand(n, generator=g, dtype=torch.float64).round() + (seed % 2) * draw(n, 1)[:, 0]
    last_N = (mask_NS * torch.arange(1, s + 1)).argmax(-1)
    outcome_NS = torch.zeros(n, s, dtype=torch.float64)
    outcome_NS[torch.arange(n), last_N] = score_N * mask_NS.any(-1)
    logprob_NS = -draw(n, s).abs()
    proximal_NS = logprob_NS + apart * draw(n, s)
    batch = TrainBatch(
        mask_NS=mask_NS,
        group_N=group_N,
        proximal_NS=proximal_NS,
        behavior_NS=proximal_NS + apart * draw(n, s),
        reference_NS=logprob_NS + apart * draw(n, s),
        current_NS=logprob_NS,
        advantage_NS=draw(n, s),
        reward_NS=outcome_NS,
    )
    return Case(batch=batch, logprob_NS=logprob_NS, reward_NS=draw(n, s) * mask_NS, value_NS=draw(n, s))
