"""Tokens a second of the native engine and its peers: same model, same requests, same batch, in turns.

python benchmarks/generate.py [--vllm-python PYTHON] [--out FILE]. Every token ends its text with the same chance, so a batch of
`generate` waits for its longest row while the others, which batch continuously, refill rows. All sample at temperature 1.

`generate_batch` is transformers' own continuous batching. It does run on a CPU, but what makes it fast is for GPUs: its pages are read
by flash attention or by CUDA graphs, and without them all queries of a batch are scored against all keys of all its requests, and a
mask removes the others'. Its cache is sized by hand, because left alone it takes nine tenths of the memory. vLLM is run by gimbal's
engine of that name; like the native one that records the log-probability of each token, which `generate` and `generate_batch` do
not. It works in a process of its own, by --vllm-python where this Python has no vLLM. Neither its start nor the first round counts.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch

from gimbal.engines.base import AbstractEngine, Request
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import training_tasks
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy
from gimbal.records import Task

Measured = tuple[int, float]  # tokens, seconds
PAGE = 32  # positions of a page of `generate_batch`
PRECISIONS = ("float32", "bfloat16")


def end_by_chance(policy: TokenPolicy, mean: float) -> None:
    """Make all tokens equally likely and enough of them end the text that lengths are geometric with about this mean."""
    model = policy.model
    head = model.get_output_embeddings()
    model.config.tie_word_embeddings = False
    head.weight = torch.nn.Parameter(torch.zeros_like(head.weight))
    ends = range(1, 1 + max(1, round(len(head.weight) / mean)))  # 0 pads
    model.generation_config.eos_token_id = list(ends)


def by_engine(engine: AbstractEngine, policy: TokenPolicy, tasks: list[Task], longest: int) -> Measured:
    engine.load(0, policy.state_dict())  # nothing is kept of the repetition before
    start, tokens = time.perf_counter(), 0
    for i, task in enumerate(tasks):
        engine.submit(Request(group=i, task=task, sample=0, sampling=Sampling(max_length=longest), seed=0))
    while engine.in_flight:
        tokens += sum(finished.rollout.length for finished in engine.step())
    return tokens, time.perf_counter() - start


def native(policy: TokenPolicy, tasks: list[Task], o: argparse.Namespace, precision: str) -> Measured:
    return by_engine(Native(slots=o.slots, precision=precision).start(policy), policy, tasks, o.longest)


def generate(policy: TokenPolicy, tasks: list[Task], o: argparse.Namespace) -> Measured:
    tokenizer, ends = policy.tokenizer, torch.tensor(policy.end_ids)
    tokenizer.padding_side = "left"
    start, tokens = time.perf_counter(), 0
    for first in range(0, len(tasks), o.slots):
        inputs = tokenizer([task.prompt for task in tasks[first : first + o.slots]], return_tensors="pt", padding=True)
        with torch.inference_mode():
            out = policy.model.generate(
                input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=o.longest,
                do_sample=True, temperature=1.0, top_k=0, eos_token_id=list(policy.end_ids), pad_token_id=tokenizer.pad_token_id,
            )  # fmt: skip
        new = out[:, inputs["input_ids"].shape[1] :]
        ending = torch.isin(new, ends)
        tokens += int((ending.cumsum(1) - ending.int() == 0).sum())
        [policy.decode(row) for row in new.tolist()]  # the engine decodes too
    return tokens, time.perf_counter() - start


def generate_batch(policy: TokenPolicy, tasks: list[Task], o: argparse.Namespace) -> Measured:
    from transformers import GenerationConfig
    from transformers.generation import ContinuousBatchingConfig

    start = time.perf_counter()
    prompts = [policy.encode_task(task) for task in tasks]
    pages = math.ceil((max(map(len, prompts)) + o.longest) / PAGE)
    out = policy.model.generate_batch(
        prompts,
        generation_config=GenerationConfig(
            max_new_tokens=o.longest, do_sample=True, temperature=1.0, top_k=0, eos_token_id=list(policy.end_ids),
            pad_token_id=policy.tokenizer.pad_token_id,
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            page_size=PAGE, num_blocks=o.slots * pages, max_requests_per_batch=o.slots, max_batch_tokens=4 * o.slots,
        ),
        warmup=False,  # captures CUDA graphs
    )  # fmt: skip
    texts = [policy.decode(request.generated_tokens) for request in out.values()]
    if len(texts) < len(tasks) or any(request.error for request in out.values()):
        raise SystemExit(
            "generate_batch failed on some requests: " + str([r.error for r in out.values() if r.error][:1])
        )
    return sum(len(request.generated_tokens) for request in out.values()), time.perf_counter() - start


def serve(policy: TokenPolicy, tasks: list[Task], o: argparse.Namespace) -> None:
    """The other process: start vLLM, then one measurement for each line that arrives."""
    from gimbal.engines.vllm import VLLM

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints
    # Room for all slots at full length; a prompt here is shorter than 128.
    bytes_each = 2 * 4 * policy.model.config.num_hidden_layers * policy.model.config.hidden_size * (o.longest + 128)
    spec = VLLM(slots=o.slots, precision=o.serve, cache_gb=max(0.25, 2 * o.slots * bytes_each / (1 << 30)))
    engine = spec.start(policy)
    print("ready", file=answers, flush=True)
    for _ in sys.stdin:
        print(json.dumps(by_engine(engine, policy, tasks, o.longest)), file=answers, flush=True)


def vllm(python: str, o: argparse.Namespace, precision: str) -> Callable[[], Measured]:
    words = [python, __file__, "--serve", precision]
    for name in ("requests", "slots", "longest", "mean", "threads"):
        words += [f"--{name}", str(getattr(o, name))]
    # It leaves when its standard input closes, with this process.
    server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None and server.stdout is not None
    asked, answers = server.stdin, server.stdout
    if not answers.readline():
        raise SystemExit(f"vLLM in {precision} does not start under {python}; its message is above")

    def measure() -> Measured:
        print("go", file=asked, flush=True)
        tokens, seconds = json.loads(answers.readline())
        return tokens, seconds

    return measure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=384)
    parser.add_argument("--slots", type=int, default=64)
    parser.add_argument("--longest", type=int, default=192)
    parser.add_argument("--mean", type=float, default=32.0)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--vllm-python", default=sys.executable if find_spec("vllm") else None)
    parser.add_argument("--serve", choices=PRECISIONS, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    o = parser.parse_args()
    torch.set_num_threads(o.threads)
    policy = CausalLM().load()
    end_by_chance(policy, o.mean)
    source = training_tasks()
    tasks = [source[i] for i in range(o.requests)]
    if o.serve:
        return serve(policy, tasks, o)
    arms: dict[str, Callable[[], Measured]] = {
        **{f"native {p}": lambda p=p: native(policy, tasks, o, p) for p in PRECISIONS},
        "generate": lambda: generate(policy, tasks, o),
        "generate_batch": lambda: generate_batch(policy, tasks, o),
    }
    if o.vllm_python:
        arms |= {f"vllm {p}": vllm(o.vllm_python, o, p) for p in PRECISIONS}
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for repetition in range(-1, o.repetitions):
        for name, arm in arms.items():
            tokens, seconds = arm()
            if repetition >= 0:  # the first round warms up
                rates[name].append(tokens / seconds)
    for name, values in rates.items():
        ratio = statistics.median(a / b for a, b in zip(rates["native float32"], values, strict=True))
        print(f"{name:16} {statistics.median(values):8.0f} tokens/s ({min(values):.0f} to {max(values):.0f})"
              f"  native float32 / this: {ratio:.2f}")  # fmt: skip
    if o.out:
        setting = {"cores": os.cpu_count()} | {
            k: v for k, v in vars(o).items() if k not in ("out", "serve", "vllm_python")
        }
        runs = [{"arm": arm, "seed": i, "tokens a second": x} for arm in rates for i, x in enumerate(rates[arm])]
        o.out.write_text(json.dumps({"setting": setting, "runs": runs}, indent=1) + "\n")


if __name__ == "__main__":
    main()
