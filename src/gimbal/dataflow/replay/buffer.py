"""The newest rows are kept, and each step trains on some of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, replaying
from gimbal.ops import philox
from gimbal.records import TrainBatch

ABSENT_IS_0 = ("part_NS", "turn_NS")  # a batch without them is one response in one turn


@dataclass(frozen=True, kw_only=True)
class Buffer(AbstractStoreSpec):
    """Keeps the newest groups, until they have ``capacity`` rows; each step draws some of them, new and old alike, each whole and at
    most once, until there are ``draw`` rows.

    So a step may have up to one group more than ``draw``, and there may be one more than ``capacity``: a part of a group would be
    compared with a part, and a branch would have lost its trunk. Until ``draw`` rows are held, a step takes all of them.

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
        if self.draw > self.capacity:
            raise ValueError(
                f"Buffer has capacity {self.capacity} and draw {self.draw}, more rows than it keeps: store.draw={self.capacity}, or "
                f"store.capacity={self.draw}"
            )

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

    def start(self, seed: int) -> BufferStore:
        return BufferStore(self, seed)


class BufferStore(AbstractStore):
    """The rows themselves, oldest first."""

    def __init__(self, spec: Buffer, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.rows: TrainBatch | None = None
        self.taken = 0  # steps so far

    def take(self, fresh: TrainBatch) -> TrainBatch:
        rows = fresh if self.rows is None else joined([self.rows, fresh])
        rows = self._newest(rows)
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

    def _newest(self, rows: TrainBatch) -> TrainBatch:
        """Without the groups that came in before the last ``capacity`` rows, each as a whole."""
        count, capacity = rows.shape[0], self.spec.capacity
        if count <= capacity:
            return rows
        group_N = rows.column("group_N", self)
        return rows.select(torch.isin(group_N, group_N[count - capacity :]).nonzero()[:, 0])

    def metrics(self) -> dict[str, float]:
        return {"replay/held": float(0 if self.rows is None else self.rows.shape[0])}

    def state_dict(self) -> dict[str, Any]:
        rows = self.rows
        held: dict[str, Any] = {}
        if rows is not None:
            held = {**_columns(rows), "roles": rows.roles, "facts": dict(rows.facts), "decisions": rows.decisions}
        return {"rows": held, "taken": self.taken}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.taken = state["taken"]
        self.rows = TrainBatch(**state["rows"]) if state["rows"] else None


def joined(batches: Sequence[TrainBatch]) -> TrainBatch:
    """All rows of all batches in order, padded to the longest. A fact that one of them lacks is 0 there, and so are parts and turns.

    A number of a group is one of the whole run. What counts within a batch is counted on: episodes, the rows that others split off, and
    the places of roles; with the numbers of its own batch an episode would be one with the episodes of others.
    """
    shifted = list(_counted_on(batches))
    longest = max(batch.shape[1] for batch in batches)

    def padded(x: Tensor, batch: TrainBatch) -> Tensor:
        # A fact of another second size, such as [N, copies, D], is whole.
        if x.shape[1:2] != batch.shape[1:2]:
            return x
        return torch.nn.functional.pad(x, (0, 0) * (x.ndim - 2) + (0, longest - x.shape[1]))

    def together(own: Sequence[Mapping[str, Tensor]], names: Iterable[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            like = next((x[name], b) for x, b in zip(own, batches, strict=True) if name in x)
            rest = [x[name] if name in x else _zeros(*like, b) for x, b in zip(own, batches, strict=True)]
            found[name] = torch.cat([padded(x, b) for x, b in zip(rest, batches, strict=True)])
        return found

    own = [_columns(batch) for batch in shifted]
    known = dict.fromkeys(name for columns in own for name in columns)
    names = [name for name in known if name in ABSENT_IS_0 or all(name in columns for columns in own)]
    facts = [batch.facts for batch in batches]
    decisions = [batch.decisions for batch in batches if batch.decisions is not None]
    return TrainBatch(
        **together(own, names),
        facts=together(facts, dict.fromkeys(name for of in facts for name in of)),
        roles=shifted[0].roles,
        decisions=type(decisions[0]).stack(decisions),
    )


def _counted_on(batches: Sequence[TrainBatch]) -> Iterator[TrainBatch]:
    """The batches with numbers that hold in all of them together."""
    roles = tuple(sorted({role for batch in batches for role in batch.roles}))
    rows = episodes = 0
    for batch in batches:
        changed: dict[str, Any] = {}
        if batch.parent_N is not None:
            changed["parent_N"] = torch.where(batch.parent_N < 0, batch.parent_N, batch.parent_N + rows)
        if batch.row_N is not None:
            changed["row_N"] = batch.row_N + rows
        if batch.episode_N is not None:
            # From 0 again, or they would grow for ever.
            changed["episode_N"] = batch.episode_N.unique(return_inverse=True)[1] + episodes
        if batch.role_N is not None and batch.roles:
            place_R = torch.tensor([roles.index(role) for role in batch.roles], device=batch.role_N.device)
            changed["role_N"] = place_R[batch.role_N]
        yield replace(batch, roles=roles, **changed)
        rows += batch.shape[0]
        episodes += batch.shape[0]  # at most one for each row


def _zeros(like: Tensor, there: TrainBatch, batch: TrainBatch) -> Tensor:
    """In the place of a column that a batch lacks, and that another has."""
    wide = batch.shape if like.shape[1:2] == there.shape[1:2] else (batch.shape[0], *like.shape[1:2])
    return like.new_zeros((*wide, *like.shape[2:]))


def _columns(batch: TrainBatch) -> dict[str, Tensor]:
    found = {item.name: getattr(batch, item.name) for item in fields(batch)}
    return {name: x for name, x in found.items() if isinstance(x, Tensor)}
