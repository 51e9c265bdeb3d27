"""Bytes that a weight sync moves: sparse deltas beside full copies, in real training steps, checked to the last bit.

A Qwen3 architecture of 58 M random weights (float32 in the learner, bfloat16 in the sampler) draws rollouts and is trained on them
by GRPO with AdamW, at several learning rates; and gimbal-tiny at the demo's own. After each step what the sampler's side holds is
compared, bit by bit, with the learner's weights after the cast.

    python benchmarks/sync.py --out benchmarks/sync.json         # ten minutes on 2 cores

Beside it, the share of a step that the proof of delivery takes, by processor time, in the demo and at 55 M (with 16 short rollouts a
step, so against little): the manifest, two readings, and at two versions of eight both sides' passes over the canary.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from gimbal.advantages import GroupNormalized
from gimbal.engines.native import Native
from gimbal.engines.receipts import tensors
from gimbal.learning.weight_sync.delta import Receiver, Sender
from gimbal.learning.weight_sync.proof import asked
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.demo import demo
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

RATES = (1e-6, 3e-6, 1e-5, 1e-4, 1e-3)


@dataclass(frozen=True, kw_only=True)
class Digits(AbstractReward):
    """The share of digits in the text: random weights earn some of it, and not all the same, so GRPO has a gradient."""

    name: str = "digits"

    def __call__(self, group: Group) -> list[float | None]:
        return [sum(c.isdigit() for c in r.text) / max(1, len(r.text)) for r in group.rollouts]


def large(directory: Path) -> CausalLM:
    """The architecture and tokenizer of gimbal-tiny, at 58 M parameters."""
    from transformers import AutoConfig, AutoTokenizer

    tiny = CausalLM().path
    config = AutoConfig.from_pretrained(tiny)
    config.update({"hidden_size": 640, "intermediate_size": 2560, "num_hidden_layers": 9, "head_dim": 64})
    config.update({"num_attention_heads": 10, "num_key_value_heads": 5, "layer_types": ["full_attention"] * 9})
    config.save_pretrained(directory)
    AutoTokenizer.from_pretrained(tiny).save_pretrained(directory)
    return CausalLM(model=str(directory), fresh=True)


def small_batches(policy: CausalLM, rate: float) -> Run:
    return replace(
        demo(),
        policy=policy,
        engine=Native(slots=16, precision="bfloat16"),
        sampling=Sampling(max_length=32),
        rewards=(Digits(),),
        filters=(),
        advantage=GroupNormalized(),
        prompts_per_step=2,
        num_generations=8,
        held_out=None,
        optimization=replace(demo().optimization, learning_rate=rate),
    )


def measure(run: Run, steps: int, dtype: torch.dtype) -> dict[str, object]:
    trainer = Trainer(run)
    try:
        trainer.begin()
        sender, receiver = Sender(dtype), Receiver()
        policy = trainer.learner.policy
        full = sender.publish(0, policy.state_dict())
        receiver.catch_up(sender.since)
        rows: list[dict[str, float]] = []
        for _ in range(steps):
            metrics = trainer.advance()[0]
            start = time.perf_counter()
            packet = sender.publish(trainer.learner.version, policy.state_dict())
            sent = time.perf_counter()
            receiver.catch_up(sender.since)
            applied = time.perf_counter()
            rows.append(
                {
                    "changed": packet.share,
                    "bytes": packet.nbytes,
                    "exact": float(exact(receiver, policy.state_dict(), dtype)),
                    "encode_s": sent - start,
                    "apply_s": applied - sent,
                    "step_s": metrics["time/step"],
                    "grad_norm": metrics["grad_norm"],
                }
            )
        whole = b"".join(full.buckets)
        moved = statistics.mean(row["bytes"] for row in rows)
        return {
            "parameters": sum(p.numel() for p in policy.parameters()),
            "learning_rate": run.optimization.learning_rate,
            "dtype": str(dtype).removeprefix("torch."),
            "full_bytes": len(whole),
            "full_zlib_bytes": len(zlib.compress(whole, 1)),
            "sparse_bytes": moved,
            "times_fewer": len(whole) / moved,
            "least_times_fewer": len(whole) / max(row["bytes"] for row in rows),
            "changed": statistics.mean(row["changed"] for row in rows),
            "exact": all(row["exact"] for row in rows),
            "steps": rows,
        }
    finally:
        trainer.close()


def exact(receiver: Receiver, state: dict[str, torch.Tensor], dtype: torch.dtype) -> bool:
    """Whether every bit that was received is the learner's after the cast."""
    found = receiver.state
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        cast = tensor.to(dtype) if tensor.is_floating_point() else tensor
        here, there = (t.contiguous().view(-1).view(torch.uint8) for t in (found[name], cast))
        if not torch.equal(here, there):
            return False
    return True


def proof_share(run: Run, steps: int) -> dict[str, float]:
    """Seconds of this process's CPU time (wall time on a busy machine says little): medians, and of the canary the mean, for it is not
    asked at every version. ``reading_s`` is of one reading; there are two a load, in other processes beside each copy."""
    trainer = Trainer(replace(run, held_out=None, threads=1))
    trainer.begin()
    learner, engine, proof = trainer.learner, trainer.engine, trainer.deliveries[""].proof
    times: dict[str, list[float]] = {"step_s": [], "manifest_s": [], "reading_s": [], "canary_s": []}

    def timed(name: str, function: Callable[[], object]) -> None:
        begin = time.process_time()
        function()
        times[name].append(time.process_time() - begin)

    def canary() -> None:
        if asked(engine.form, learner.version):
            proof._trainer_D()
            engine.witness(learner.version, proof.canary)

    try:
        for _ in range(steps):
            timed("step_s", trainer.advance)
            timed("manifest_s", lambda: engine.manifest(tensors(learner.policy)))
            timed("reading_s", engine.reading)
            timed("canary_s", canary)
    finally:
        trainer.close()
    found = {name: statistics.median(values) for name, values in times.items()}
    found["canary_s"] = statistics.mean(times["canary_s"])
    found["proof_s"] = found["manifest_s"] + 2 * found["reading_s"] + found["canary_s"]
    return found | {"share": found["proof_s"] / found["step_s"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--proof", action="store_true", help="the proof's share alone")
    options = parser.parse_args()
    cells: list[dict[str, object]] = []
    print(f"{'parameters':>11} {'rate':>8} {'as':>9} {'changed':>8} {'full':>12} {'sparse':>12} {'times':>7}  exact")
    with tempfile.TemporaryDirectory() as scratch:
        policy = large(Path(scratch))
        proof = [{"step_of": "demo", **proof_share(demo(), 16)}]
        run = replace(small_batches(policy, RATES[0]), engine=Native(slots=16, precision="int8"))
        proof.append({"step_of": "55 M", **proof_share(run, 8)})
        for cost in proof:
            print(f"proof of delivery: {cost['share']:.2%} of a step of {cost['step_of']}", flush=True)
        if options.proof:
            if options.out:
                found = json.loads(options.out.read_text()) | {"proof": proof}
                options.out.write_text(json.dumps(found, indent=1) + "\n")
            return
        plans = [(small_batches(policy, rate), torch.bfloat16) for rate in RATES]
        plans += [(small_batches(policy, RATES[0]), torch.float32)]
        tiny = replace(demo(), held_out=None)
        plans += [(tiny, torch.bfloat16), (tiny, torch.float32)]
        for run, dtype in plans:
            run = replace(run, threads=torch.get_num_threads())
            cell = measure(run, options.steps, dtype)
            cells.append(cell)
            print(
                f"{cell['parameters']:>11,} {cell['learning_rate']:>8.0e} {cell['dtype']:>9} {cell['changed']:>8.2%} "
                f"{cell['full_bytes']:>12,} {cell['sparse_bytes']:>12,.0f} {cell['times_fewer']:>7.1f}  {cell['exact']}",
                flush=True,
            )
            if options.out:
                options.out.write_text(
                    json.dumps({"torch": torch.__version__, "proof": proof, "cells": cells}, indent=1) + "\n"
                )


if __name__ == "__main__":
    main()
