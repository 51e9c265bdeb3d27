"""What an update yields, held against what the learner can move by. An update of a user's own is refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from gimbal.config.own import OwnError, wrong
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Models
from gimbal.records import TrainBatch

OPTIMIZER = "ModelSpec(optimizer=AdamW(learning_rate=1e-5))"  # as it is typed


def moves_the_policy(update: AbstractUpdate) -> None:
    """Refuses an update without a policy that learns, before anything is sampled."""
    spec = update.models().get(POLICY)
    if spec is None or spec.optimizer is None:
        lacks = "no model" if spec is None else "no optimizer for its model"
        raise OwnError(
            f"{_name(update)}.models() has {lacks} {POLICY!r}, by which samplers draw: return {{{POLICY!r}: {OPTIMIZER}}}"
        )


def begun(update: AbstractUpdate, models: Models, micro: TrainBatch) -> Iterator[Loss]:
    losses = update.losses(models, micro)
    if not isinstance(losses, Iterator):
        raise wrong(update, "losses", losses, "an iterator of losses: write `yield Loss(...)` in it")
    return losses


def accepted(update: AbstractUpdate, models: Models, loss: Any) -> Loss:
    """A loss of models that are there and have optimisers, whose value is one number."""
    if not isinstance(loss, Loss):
        raise wrong(update, "losses", loss, "Loss(of=('policy',), value=...)", "yield")
    if isinstance(loss.of, str) or not loss.of:
        raise wrong(update, "losses", f"a loss of {loss.of!r}", "one of names of models: of=('policy',)", "yield")
    if not isinstance(loss.value, Tensor) or loss.value.shape != ():
        raise wrong(update, "losses", loss.value, "a loss whose value is one number, a sum over decisions", "yield")
    for name in loss.of:
        if name not in models.specs:
            known = ", ".join(models.specs)
            raise OwnError(f"{_name(update)} yields a loss of {name!r}, which is none of its models ({known})")
        if name not in models.optimizers:
            raise OwnError(
                f"{_name(update)} yields a loss of {name!r}, which has no optimizer: in models() give it one, {OPTIMIZER}"
            )
    return loss


def without_gradient(update: AbstractUpdate, loss: Loss) -> OwnError:
    of = " and ".join(loss.of)
    return OwnError(
        f"the loss of {of} that {_name(update)} yields has no gradient (its value is {loss.value.item():.3g}), so nothing is "
        "learned: models.evaluated(batch) and the columns of the batch are constants; compute it from "
        "models.policy.evaluate(batch.decisions, temperature=models.forward.temperature).logprob_NS"
    )


def _name(update: AbstractUpdate) -> str:
    return type(update).__name__
