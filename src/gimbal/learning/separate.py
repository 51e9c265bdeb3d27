"""Roles with weights of their own: which model acts in which role, and the evaluation of rows by the model of their role."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from gimbal.learning.kinds import OtherKind, Segment
from gimbal.objectives.base import AbstractObjective
from gimbal.policies.base import Evaluation
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class SeparateWeights:
    """A model of its own for some roles of the workflow (UnityMAS-O, arXiv:2605.26646; ReMA, arXiv:2503.09501).

    With theta_m the weights of model m and m(i) the model of row i's role,

        loss = sum_i w_i loss_i(theta_m(i)),    so    d loss / d theta_m = sum over m's own rows.

    Each model has its own optimiser, gradient clip, sampler, delivery proof and files. The weights w_i, the advantages and all other
    statistics are those of the whole batch, as with shared weights.

    - both models hold the same weights: their gradients add up to that of shared weights, to rounding.
    - ``learning_rate`` 0: the model stays as it began.
    - no role has weights of its own: the policy plays all of them.

    ``roles`` are the roles it acts in; () is the role of its own name. It begins as the run's policy, or from ``model``, a directory of
    the same architecture, or it is a model of another ``kind``, with a loss of its own. ``learning_rate`` None is the policy's; the
    schedule and all else of ``optimization`` hold for both.

    Confidence: verified (the map from role to model); ours: one denominator for all models.
    """

    roles: tuple[str, ...] = ()
    model: str = ""
    learning_rate: float | None = None
    kind: OtherKind | None = None

    def __post_init__(self) -> None:
        if self.kind is not None and self.model:
            raise ValueError(
                f"separate has the model {self.model} and a kind: a model of another kind begins as kind.policy says, so drop model"
            )
        if self.learning_rate is not None and not 0 <= self.learning_rate < 1000:
            raise ValueError(f"separate learning_rate is {self.learning_rate}; it must be from 0, below 1000, or none")


def owners(separate: Mapping[str, SeparateWeights]) -> dict[str, str]:
    """The model of each role that does not share the policy."""
    return {role: name for name, one in separate.items() for role in one.roles or (name,)}


def kinds_of(separate: Mapping[str, SeparateWeights]) -> dict[str, OtherKind]:
    """The models of other kinds than the policy, by name."""
    return {name: one.kind for name, one in separate.items() if one.kind is not None}


def segments(summed: tuple[AbstractObjective, ...], separate: Mapping[str, SeparateWeights]) -> list[Segment]:
    """The policy's segment, whose loss sums these parts, and one for each model of another kind."""
    kinds = kinds_of(separate)
    others = {role: name for role, name in owners(separate).items() if name in kinds}
    found = [Segment(kind="", parts=summed, others=others)]
    for name, kind in kinds.items():
        first = found[-1].first + len(found[-1].parts)
        found.append(Segment(kind=name, parts=kind.summed, first=first, weight=kind.weight, others=others))
    return found


def by_role(
    batch: TrainBatch, owners: Mapping[str, str], evaluate: Callable[[str, TrainBatch], Evaluation]
) -> Evaluation:
    """The rows of each model evaluated by ``evaluate(model, its rows)``, "" being the policy, back in the order of the batch."""
    model_R = [owners.get(role, "") for role in batch.roles]
    if (role_N := batch.role_N) is None or not set(model_R) - {""}:
        return evaluate("", batch)
    places = {
        name: torch.tensor([name == one for one in model_R], device=role_N.device) for name in dict.fromkeys(model_R)
    }
    rows = {name: row_N for name, own in places.items() if len(row_N := own[role_N].nonzero()[:, 0])}
    if len(rows) == 1:
        return evaluate(next(iter(rows)), batch)
    found = [(row_N, evaluate(name, batch.select(row_N))) for name, row_N in rows.items()]
    names = dict.fromkeys(name for _, part in found for name in part.columns)  # models of several kinds have their own
    columns = {name: [(rows, part.columns[name]) for rows, part in found if name in part.columns] for name in names}
    return Evaluation(
        logprob_NS=in_rows(batch, [(row_N, part.logprob_NS) for row_N, part in found]),
        columns={name: in_rows(batch, parts) for name, parts in columns.items()},
    )


def in_rows(batch: TrainBatch, parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Columns [M, S', ...] of these rows as one [N, S, ...], 0 beyond the end of a row and in all other rows."""
    first = parts[0][1]
    whole = first.new_zeros(*batch.shape, *first.shape[2:])
    for row_M, part in parts:
        wide = torch.nn.functional.pad(part, (0, 0) * (part.ndim - 2) + (0, batch.shape[1] - part.shape[1]))
        whole = whole.index_copy(0, row_M, wide)
    return whole
