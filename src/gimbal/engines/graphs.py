"""Decoding on a GPU without Python between its kernels: each shape of a forward pass is recorded once as a CUDA graph and replayed.

One token of each row is hundreds of small kernels, which Python launches more slowly than the GPU runs them. A graph reads and writes
fixed addresses, so ids and positions are copied in, and sizes are rounded up to few: rows to a power of two, positions to an eighth
of one. The rows that fill up a batch are free ones: what they write at their first position is overwritten when a
rollout gets the row.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.engines.cache import EXTENT, SlotCache, read_on


class Graphs:
    """Logits after one further token of the live rows, by replay.

    The first pass of a shape runs as usual, which also sets up the kernels that it calls; the second is recorded. All graphs share
    one pool of memory and one table of logits, since each result is read before the next pass. A cache that moves or is freed ends
    all of them.
    """

    def __init__(self, model: Any, slots: SlotCache) -> None:
        self.model, self.slots = model, slots
        self._graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}  # None: passed once, not recorded yet
        self._pool: Any = None
        self._epoch = -1
        self._token_2B: Tensor | None = None  # ids and positions
        self._logits_BV: Tensor | None = None

    def __call__(
        self, id_B1: Int[Tensor, "B one"], position_B1: Int[Tensor, "B one"], extent: int
    ) -> Float[Tensor, "B one V"]:
        if self._epoch != self.slots.epoch:
            self.forget()
        n, shape = len(id_B1), rounded(len(id_B1), extent, self.slots.slots, self.slots.capacity)
        rows, extent = shape
        if self._token_2B is None:
            self._token_2B = id_B1.new_zeros(2, self.slots.slots)
        token_2B = self._token_2B[:, :rows]
        token_2B[0, :n], token_2B[1, :n] = id_B1[:, 0], position_B1[:, 0]
        token_2B[:, n:] = 0
        if shape not in self._graphs or self._logits_BV is None:
            self._graphs[shape], logits_B1V = None, self._pass(token_2B, extent)
            if self._logits_BV is None:
                self._logits_BV = logits_B1V.new_zeros(self.slots.slots, logits_B1V.shape[-1])
            return logits_B1V[:n]
        if (graph := self._graphs[shape]) is None:
            self._graphs[shape] = graph = self._record(token_2B, extent, self._logits_BV[:rows])
        graph.replay()
        return self._logits_BV[:n, None]

    def forget(self) -> None:
        """End all graphs, and free what they hold."""
        self._graphs, self._pool, self._logits_BV = {}, None, None
        self._epoch = self.slots.epoch

    def _pass(self, token_2R: Int[Tensor, "two R"], extent: int) -> Float[Tensor, "R one V"]:
        return read_on(self.model, self.slots, token_2R[0, :, None], token_2R[1, :, None], extent)

    def _record(
        self, token_2R: Int[Tensor, "two R"], extent: int, logits_RV: Float[Tensor, "R V"]
    ) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._pool = self._pool or torch.cuda.graph_pool_handle()
        try:
            # Other threads may allocate meanwhile: the learner, where it is not the sampler's.
            with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
                logits_RV.copy_(self._pass(token_2R, extent)[:, 0])
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            raise ValueError(
                f"{type(self.model).__name__} cannot be recorded as a CUDA graph: engine.graphs=false samples without ({error})"
            ) from error
        return graph


def rounded(rows: int, extent: int, slots: int, capacity: int) -> tuple[int, int]:
    """The shape that a pass over so many rows and positions is recorded with; at most 25 % more positions, and twice the rows."""
    step = max(EXTENT, (1 << max(0, extent - 1).bit_length()) // 8)
    return min(slots, 1 << (rows - 1).bit_length()), min(capacity, -(-extent // step) * step)
