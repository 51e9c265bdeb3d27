"""Tokens a second of the native engine and of transformers' generate: same model, same requests, same batch, alternating.

python benchmarks/generate.py [--out FILE]. Answers have ragged lengths (the end token is drawn with a fixed chance), so a batch of
generate waits for its longest row while continuous batching refills rows. Both sample at temperature 1.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path

import torch

from gimbal.engines.base import Request
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import practice
from gimbal.policies.token import CausalLM, TokenPolicy
from gimbal.records import Sampling, Task


def end_by_chance(policy: TokenPolicy, chance: float, longest: int) -> None:
    """Bend the output layer so that every token ends the text with about this probability: geometric lengths."""
    model, end = policy.model, policy.end_ids[0]
    head = model.get_output_embeddings()
    model.config.tie_word_embeddings = False
    head.weight = torch.nn.Parameter(head.weight.detach().clone() * 0.05)
    head.bias = torch.nn.Parameter(torch.zeros(head.weight.shape[0]))
    head.bias.data[end] = torch.tensor(chance / (1 - chance) * (head.weight.shape[0] - 1)).log()


def native(policy: TokenPolicy, tasks: list[Task], slots: int, longest: int, precision: str) -> tuple[int, float]:
    engine = Native(slots=slots, precision=precision).start(policy)
    engine.load(0, policy.state_dict())
    start, tokens = time.perf_counter(), 0
    for i, task in enumerate(tasks):
        engine.submit(Request(group=i, task=task, sample=0, sampling=Sampling(max_length=longest), seed=0))
    while engine.in_flight:
        tokens += sum(finished.rollout.length for finished in engine.step())
    return tokens, time.perf_counter() - start


def generate(policy: TokenPolicy, tasks: list[Task], slots: int, longest: int) -> tuple[int, float]:
    tokenizer, model, end = policy.tokenizer, policy.model, policy.end_ids[0]
    tokenizer.padding_side = "left"
    start, tokens = time.perf_counter(), 0
    for first in range(0, len(tasks), slots):
        inputs = tokenizer([task.prompt for task in tasks[first : first + slots]], return_tensors="pt", padding=True)
        with torch.inference_mode():
            out = model.generate(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=longest,
                do_sample=True, temperature=1.0, top_k=0, eos_token_id=end, pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        new = out[:, inputs["input_ids"].shape[1] :]
        ended = (new == end).cumsum(1)
        tokens += int(((ended == 0) | ((ended == 1) & (new == end))).sum())
        [policy.decode(row) for row in new.tolist()]  # the engine decodes too
    return tokens, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=384)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--longest", type=int, default=192)
    parser.add_argument("--mean", type=float, default=32.0)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    policy = CausalLM().load()
    end_by_chance(policy, 1 / o.mean, o.longest)
    source = practice()
    tasks = [source[i] for i in range(o.requests)]
    rates: dict[str, list[float]] = {"native float32": [], "native bfloat16": [], "generate": []}
    for _ in range(o.repetitions):
        for name in rates:
            arm = name.removeprefix("native ")
            many = (
                generate(policy, tasks, o.slots, o.longest)
                if arm == "generate"
                else native(policy, tasks, o.slots, o.longest, arm)
            )
            rates[name].append(many[0] / many[1])
    ratios = sorted(a / b for a, b in zip(rates["native float32"], rates["generate"], strict=True))
    for name, values in rates.items():
        print(f"{name:16s} {statistics.median(values):8.0f} tokens/s  ({min(values):.0f} to {max(values):.0f})")
    print(f"native float32 / generate: {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    if o.out:
        setting = {"cores": os.cpu_count()} | {k: v for k, v in vars(o).items() if k != "out"}
        runs = [{"arm": arm, "seed": i, "tokens a second": x} for arm in rates for i, x in enumerate(rates[arm])]
        record = {"setting": setting, "runs": runs}
        o.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
