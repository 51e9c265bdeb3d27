"""The newest rows are kept, and each step trains on some of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor

from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, replaying
from gimbal.ops import philox
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class Buffer(AbstractStoreSpec):
    """Keeps the last ``capacity`` rollouts; each step draws whole groups of them, new and old alike, each at most once, until there are
    ``draw`` rows.

    It gives up the bound on the age: what it holds was drawn by any version so far. A policy gradient is refused unless something
    weights decisions by how they were drawn. The rule of staleness continues to bound the age of what comes in. (``Transitions`` keeps
    single decisions, for updates that are off-policy.)
    """

    same_rows: ClassVar[bool] = False

    capacity: int = 100_000
    draw: int = 256

    def __post_init__(self) -> None:
        if self.capacity < 1 or self.draw < 1:
            raise ValueError(f"Buffer has capacity {self.capacity} and draw {self.draw}; both count rows, at least 1")

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.run.learns.off_policy:
            yield Refusal(
                "Buffer keeps whole rollouts, and this update learns from single decisions: store='Transitions()'"
            )
            return
        yield from replaying(self, whole)
        yield Advice(
            "Buffer gives the bound up: decisions older than max_staleness are trained on, however old (see staleness/max)"
        )

    def most_age(self, max_staleness: int) -> None:
        return None

    def start(self, seed: int) -> Held:
        return Held(self, seed)


class Held(AbstractStore):
    """The rows themselves, oldest first."""

    def __init__(self, spec: Buffer, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.rows: TrainBatch | None = None
        self.taken = 0  # steps so far

    def take(self, fresh: TrainBatch) -> TrainBatch:
        rows = fresh if self.rows is None else joined([self.rows, fresh])
        if rows.shape[0] > self.spec.capacity:
            rows = rows.select(torch.arange(rows.shape[0] - self.spec.capacity, rows.shape[0]))
        self.rows, self.taken = rows, self.taken + 1
        generator = philox("buffer", self.seed, self.taken)
        group_N = rows.column("group_N", self)
        order = generator.permutation(group_N.unique().numpy())
        chosen, count = [], 0
        for group in order.tolist():
            if count < self.spec.draw:
                chosen.append((group_N == group).nonzero()[:, 0])
                count += len(chosen[-1])
        return rows.select(torch.cat(chosen))

    def metrics(self) -> dict[str, float]:
        return {"replay/held": float(0 if self.rows is None else self.rows.shape[0])}

    def state_dict(self) -> dict[str, Any]:
        rows = self.rows
        held = {} if rows is None else {**_columns(rows), "facts": dict(rows.facts), "decisions": rows.decisions}
        return {"rows": held, "taken": self.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.taken = state["taken"]
        self.rows = TrainBatch(**state["rows"]) if state["rows"] else None


def joined(batches: Sequence[TrainBatch]) -> TrainBatch:
    """All rows of all batches in order, padded to the longest. A fact that one of them lacks is 0 there."""
    longest = max(batch.shape[1] for batch in batches)

    def padded(x: Tensor) -> Tensor:
        return x if x.ndim == 1 else torch.nn.functional.pad(x, (0, 0) * (x.ndim - 2) + (0, longest - x.shape[1]))

    facts: dict[str, Tensor] = {}
    for name in dict.fromkeys(name for batch in batches for name in batch.facts):
        like = next(batch.facts[name] for batch in batches if name in batch.facts)
        own = [b.facts[name] if name in b.facts else like.new_zeros(b.shape[: like.ndim]) for b in batches]
        facts[name] = torch.cat([padded(x) for x in own])
    names = [name for name in _columns(batches[0]) if all(name in _columns(batch) for batch in batches)]
    columns: dict[str, Any] = {name: torch.cat([padded(_columns(b)[name]) for b in batches]) for name in names}
    decisions = [batch.decisions for batch in batches if batch.decisions is not None]
    return TrainBatch(**columns, facts=facts, decisions=type(decisions[0]).stack(decisions))


def _columns(batch: TrainBatch) -> dict[str, Tensor]:
    found = {item.name: getattr(batch, item.name) for item in fields(batch)}
    return {name: x for name, x in found.items() if isinstance(x, Tensor)}
