"""What the method layer costs: everything that is not the model's forward and backward pass, as a share of a learner step.

For each recipe one batch is drawn, and then timed in turns: a whole learner step (``prepare`` and ``step``), and the arithmetic of the
method alone on the same batch: anchor columns given, advantages, shapings, survey, masks, correction, aggregation, the losses, their
metrics and their gradient with respect to log-probabilities. Forward passes that a method asks for on top of the policy's own
(``current_NS``) belong to the step in which they are taken and are counted apart, as "extra forward".

    python benchmarks/overhead.py grpo dapo dcmdp --out benchmarks/overhead.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from gimbal import ops, recipes
from gimbal.dataflow.packing import pack
from gimbal.learning.learner import Learner
from gimbal.learning.updates.policy_gradient import CRITIC, needs_of
from gimbal.records import TrainBatch
from gimbal.runtime.local import Trainer


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def method_alone(learner: Learner, batch: TrainBatch, logprob_NS: torch.Tensor) -> None:
    """What a step does beside the model; the batch holds every column, surveys of the present policy included."""
    method = learner.update
    shaped, _ = method.advantages(batch, has_critic=CRITIC in learner.models)
    leaf_NS = logprob_NS.detach().requires_grad_()
    shaped = shaped.with_columns(method.objective.survey(shaped))
    weight_NS = method.aggregation(shaped.mask_NS, shaped.part_NS)
    for mask in method.masks:
        weight_NS = weight_NS * mask(shaped)
    if method.correction is not None:
        weight_NS = weight_NS * method.correction(shaped)
    share_NS = ops.TokenMean()(shaped.mask_NS)
    loss = leaf_NS.new_zeros(())
    for part in (method.objective, *method.regularisers):
        terms = part(leaf_NS, shaped)
        loss = loss + ops.masked_sum(weight_NS * terms.loss_NS, shaped.mask_NS)
        for value_NS in terms.metrics.values():
            float(ops.masked_sum(share_NS * value_NS.detach(), shaped.mask_NS))
    loss.backward()


def measure(name: str, repetitions: int, threads: int) -> dict[str, object]:
    run = replace(recipes.load(name), held_out=None, threads=threads)
    updates = run.optimization.minibatches * run.optimization.epochs
    run = replace(run, optimization=replace(run.optimization, minibatches=1, epochs=1))
    trainer = Trainer(run)
    try:
        trainer.begin()
        learner = trainer.learner
        batch = pack(trainer.pipeline.next_batch(0)[0])
        full = learner.prepare(batch)
        found = learner.models.evaluated(full, ("entropy_NS",))
        full = full.with_columns({"current_NS": found["logprob_NS"], "entropy_NS": found["entropy_NS"]})
        times: dict[str, list[float]] = {"step": [], "method": [], "forward": []}
        for repetition in range(repetitions + 1):
            drawn = {
                "step": seconds(lambda: learner.step(learner.prepare(batch))),
                "method": seconds(lambda: method_alone(learner, full, found["logprob_NS"])),
                "forward": seconds(lambda: learner.models.evaluated(full)),
            }
            for key, value in drawn.items() if repetition else ():  # the first is for warming up
                times[key].append(value)
    finally:
        trainer.close()
    middle = {key: statistics.median(values) for key, values in times.items()}
    method = run.objective, *run.regularisers, *run.masks
    # The first update on a batch needs none: the anchor is the present policy then.
    extra = middle["forward"] * (1 - 1 / updates) if "current_NS" in needs_of(*method) else 0.0
    return {
        "recipe": name,
        "rows": batch.shape[0],
        "step_s": middle["step"],
        "method_share": middle["method"] / middle["step"],
        "method_share_spread": [min(times["method"]) / middle["step"], max(times["method"]) / middle["step"]],
        "extra_forward_share": extra / middle["step"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", default=["grpo"])
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON file to write")
    words = parser.parse_args()
    rows = []
    for name in words.recipes:
        rows.append(row := measure(name, words.repetitions, words.threads))
        print(
            f"{name:20} step {row['step_s']:.3f} s  method {row['method_share']:.2%}  extra forward {row['extra_forward_share']:.1%}"
        )
    if words.out:
        words.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
