from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.successes import Successes
from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.objectives import ClippedRatio, TruncatedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run

SPARSE = {"min_terms": 6, "max_terms": 6, "min_digits": 2, "max_digits": 2}


def arpo() -> Run:
    """ARPO's replay (arXiv:2505.16282): a failed group gets a past success on its task; 128 sums of six terms, each seen many times.

    As many tasks as published, 16 per step. Replayed rollouts have importance weights, truncated at 2, where the paper treats them
    as new. On-policy except for staleness and replay: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run, held_out = grpo(), replace(held_out_tasks(size=256), parameters=SPARSE)
    return replace(
        run,
        tasks=replace(training_tasks(), parameters=SPARSE, size=128, exclude=held_out),
        held_out=HeldOut(tasks=held_out, samples=4),
        sampling=replace(run.sampling, max_length=96),
        store=Successes(least=0.9),  # partial credit is not a success
        objective=ClippedRatio(clip_low=0.2, clip_high=0.3),
        correction=TruncatedWeight(cap=2.0),
    )
