"""What a denoising run has after so many evaluations of its network, for claims that compare by them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gimbal.records import TrainBatch
from gimbal.runtime.evaluate import evaluate
from gimbal.runtime.local import Trainer

FIGURES = {"reward": "eval/greedy_score", "true": "eval/greedy", "coverage": "eval/greedy_data/coverage"}


def at(
    budget: int,
    trainer: Trainer,
    trained: Callable[[TrainBatch], int],
    early: int = 0,
    look: Callable[[Trainer], dict[str, float]] = lambda trainer: trainer.evaluate().metrics(),
) -> tuple[dict[str, Any], dict[str, float]]:
    """The figures on the line between the last step before the budget and the first after it, with steps and seconds; and the metrics
    of the last step. ``trained`` counts the evaluations that the learner spends on a batch; each step of a sampled path is one more.
    ``NAME_early``: the same figures after ``early`` steps, if that is not 0. ``look``: what the figures are read from.
    """
    sooner: dict[str, float] = {}
    spent, learned, now, steps, marks = 0.0, 0, 0.0, 0, list[tuple[float, Any]]()
    metrics: dict[str, float] = {}
    trainer.begin()
    while now < budget:
        begin = time.process_time()
        metrics, _, batch = trainer.advance()
        spent += time.process_time() - begin
        steps, learned = steps + 1, learned + trained(batch)
        before, now = now, trainer.pipeline.generated["decisions"] + learned
        marked = now + (now - before) >= budget  # the last step before, and the one after
        measured = look(trainer) if marked or steps == early else {}
        if marked:
            marks.append((now, measured))
        if steps == early:
            sooner = {f"{name}_early": round(measured[key], 4) for name, key in FIGURES.items()}
    (below, low), (beyond, high) = marks[-2:]
    share = (budget - below) / (beyond - below)
    found = {name: round(low[key] + share * (high[key] - low[key]), 4) for name, key in FIGURES.items()}
    return {**found, **sooner, "steps": steps, "cpu": round(spent, 1)}, metrics


def as_users_draw(trainer: Trainer) -> dict[str, float]:
    """The held-out figures of samples without noise alone: at half the price of an evaluation, which also samples as in training."""
    run, held_out = trainer.run, trainer.run.held_out
    assert held_out is not None
    engine = run.evaluator.start(trainer.policy)
    engine.load(0, trainer.learner.policy.weights())
    found = evaluate(engine, held_out.tasks, run.rewards, run.evaluated_by, samples=0, seed=run.seed)
    engine.close()
    return found.metrics()
