"""Models that a run saves in addition to its checkpoints: the last one, and the one with the best evaluation.

model/            the policy as the run ended
best/             the policy of the evaluation with the best figure (``held_out.save_best``), and that evaluation
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gimbal import durable
from gimbal.config.own import OwnError
from gimbal.learning.base import AbstractLearner
from gimbal.report.files import LAST, SUMMARY
from gimbal.report.held_out import smaller
from gimbal.runtime.run import HeldOut

EVALUATION = "evaluation.json"  # in the directory of the best model
MOST_FAILED = 0.5  # of an evaluation's rollouts, for its figure to be compared


def save(directory: Path, name: str, write: Callable[[Path], None], beside: Mapping[str, Any] | None = None) -> None:
    """What ``write`` puts there, at a place of its own, whole or not at all; ``beside`` is its evaluation."""
    final, partial, old = (directory / place for place in (name, f".partial_{name}", f".old_{name}"))
    for remnant in (partial, old):
        shutil.rmtree(remnant, ignore_errors=True)
    partial.mkdir()
    with durable.named(partial):
        write(partial)
        if beside is not None:
            (partial / EVALUATION).write_text(json.dumps(beside, indent=2) + "\n")
    durable.sync_tree(partial)
    if name == LAST:
        (directory / SUMMARY).unlink(missing_ok=True)  # for a moment there may be no model
    if final.exists():
        final.rename(old)
    partial.rename(final)
    durable.sync(directory)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def kept(directory: Path, learner: AbstractLearner) -> Iterator[None]:
    """If a part of the user's makes the checkpoint impossible, what was trained is saved as the run's model all the same."""
    try:
        yield
    except OwnError as error:
        if not (step := learner.version):
            raise
        save(directory, LAST, learner.save)
        raise OwnError(
            f"{error}. So there is no checkpoint; the weights after step {step} are in {directory / LAST}, and a new run begins with "
            f"them by policy.model={directory / LAST}"
        ) from error


def improved(
    held_out: HeldOut, step: int, figures: Mapping[str, float], totals: dict[str, Any]
) -> Mapping[str, Any] | None:
    """The evaluation, if it is the best so far, and then ``totals`` say so; ties go to the earlier step, the untrained policy's too.

    One without this figure because its rollouts failed, or with more than half of them failed, is never the best.
    """
    if held_out.save_best is None:
        return None
    metric, failed = f"eval/{held_out.save_best}", figures.get("eval/failed", 0.0)
    if failed > MOST_FAILED * len(held_out.tasks) * (held_out.samples + 1) or (failed and metric not in figures):
        return None  # those that are left, if any, are other tasks than an evaluation without failures has
    if metric not in figures:
        known = ", ".join(name.removeprefix("eval/") for name in figures)
        raise ValueError(
            f"held_out.save_best is {held_out.save_best}, but this run's evaluation has no such metric: it has {known}"
        )
    best = totals.get("best")
    sign = -1 if smaller(metric) else 1
    if best is not None and not sign * figures[metric] > sign * best["value"]:
        return None
    totals["best"] = {"step": step, "metric": metric, "value": figures[metric]}
    return {**totals["best"], "figures": dict(figures)} if step else None
