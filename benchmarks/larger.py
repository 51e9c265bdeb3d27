"""Whether a model a hundred times gimbal-tiny learns by RL, on one GPU: its start is made there from nothing, by supervised training on
what gimbal-tiny was trained on, and then the recipe ``stable`` trains it, from a command a user would type.

The start is made by a plain loop of torch (bfloat16, AdamW, cosine) in minutes, since no pretrained weights are at hand; its last pass
rates are those at which RL begins. RL runs as ``gimbal train stable model=DIR`` does, with what it chooses by size, but for
``SETTINGS``.

    python benchmarks/larger.py --out benchmarks/larger.json    # one GPU, five minutes
    python benchmarks/larger.py --tiny                          # anywhere, a minute: whether it runs
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

import gimbal
from gimbal.environments.demonstrations import Demonstrations
from gimbal.policies.token import CausalLM

IGNORED = -100  # the label of a token that is not learned
SETTINGS: dict[str, Any] = {
    "optimization.learning_rate": 2e-5,  # a start this young takes more than the 1e-6 of pretrained models
    "optimization.checkpointing": False,
    "sampling.max_length": 64,
    "engine.slots": 128,
}


@dataclass(frozen=True, kw_only=True)
class Size:
    hidden: int = 1024
    layers: int = 12
    heads: int = 16
    batch: int = 512  # demonstrations of a step
    supervised: int = 700  # steps
    rate: float = 6e-4
    seconds: float = 150.0  # after which the supervised steps end, wherever they are
    steps: int = 60  # of RL


TINY = Size(hidden=64, layers=2, heads=4, batch=16, supervised=20, rate=3e-3, steps=2)


def fresh(size: Size, directory: Path) -> tuple[Any, Any]:
    """A model of gimbal-tiny's kind and tokens, with weights drawn at random."""
    tokenizer = AutoTokenizer.from_pretrained(CausalLM().path)
    config = Qwen3Config.from_pretrained(CausalLM().path)
    config.update(
        {
            "hidden_size": size.hidden,
            "intermediate_size": 3 * size.hidden,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.heads,
            "num_key_value_heads": size.heads // 2,
            "head_dim": size.hidden // size.heads,
            "layer_types": ["full_attention"] * size.layers,
        }
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config), tokenizer


def demonstrations(size: Size, step: int) -> list[tuple[str, str]]:
    """Prompts and answers of one step."""
    tasks = Demonstrations(size=size.batch * size.supervised)
    found = (tasks[step * size.batch + row] for row in range(size.batch))
    return [(task.prompt, task.columns["completion"]) for task in found]


def batch(tokenizer: Any, pairs: list[tuple[str, str]]) -> tuple[Tensor, Tensor]:
    """Ids and labels, padded on the right to a multiple of 32; only answers are learned."""
    end = [tokenizer.eos_token_id]
    rows = [(tokenizer(prompt)["input_ids"], tokenizer(answer)["input_ids"] + end) for prompt, answer in pairs]
    width = -(-max(len(prompt) + len(answer) for prompt, answer in rows) // 32) * 32
    ids, labels = torch.zeros(len(rows), width).long(), torch.full((len(rows), width), IGNORED)
    for row, (prompt, answer) in enumerate(rows):
        ids[row, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
        labels[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    return ids, labels


def supervise(size: Size, directory: Path, where: torch.device) -> dict[str, float]:
    """Make the start, and say how long that took and what its last losses were."""
    model, tokenizer = fresh(size, directory)
    model.to(where).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.rate, betas=(0.9, 0.95), weight_decay=0.01)
    warm, start, losses = max(1, size.supervised // 20), time.perf_counter(), []
    done = 0.0  # of the schedule: by steps or by time, whichever is further
    with multiprocessing.get_context("spawn").Pool(max(1, multiprocessing.cpu_count() - 2)) as pool:
        for step, pairs in enumerate(pool.imap(partial(demonstrations, size), range(size.supervised))):
            done = max(step / size.supervised, (time.perf_counter() - start) / size.seconds)
            if done >= 1:
                break
            rate = size.rate * min((step + 1) / warm, 0.5 * (1 + math.cos(math.pi * done)))
            for group in optimizer.param_groups:
                group["lr"] = rate
            ids, labels = (part.to(where) for part in batch(tokenizer, pairs))
            with torch.autocast(where.type, torch.bfloat16, enabled=where.type == "cuda"):
                loss = model(input_ids=ids, labels=labels, use_cache=False).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.detach())
            if step % 50 == 0:
                print(
                    f"supervised {step:4d}  loss {losses[-1].item():.3f}  {time.perf_counter() - start:.0f} s",
                    flush=True,
                )
        pool.terminate()
    model.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return {
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "supervised_steps": len(losses),
        "supervised_s": round(time.perf_counter() - start, 1),
        "supervised_loss": round(float(torch.stack(losses[-20:]).mean()), 3),
    }


def reinforce(size: Size, directory: Path, home: Path) -> dict[str, Any]:
    settings = SETTINGS | {"steps": size.steps, "held_out.every": max(1, size.steps // 3)}
    result = gimbal.train(
        "stable", model=str(directory), runs=home, **{key.replace(".", "__"): value for key, value in settings.items()}
    )
    told = result.summary
    rows = [json.loads(line) for line in (result.directory / "metrics.jsonl").read_text().splitlines()]
    kinds = {"held-out pass@1": "eval/pass@1", "held-out greedy": "eval/greedy"}
    return {
        "steps": told.steps,
        "tokens": told.tokens_generated,
        "training_s": round(told.seconds_training),
        "max_age": told.max_age,
        "exam": [
            {"exam": when, **{name: round(figures[key], 3) for name, key in kinds.items()}}
            for when, figures in (("before RL", told.before), ("after RL", told.after))
        ],
        "curve": [round(row["reward/mean"], 3) for row in rows if "reward/mean" in row],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="a model of no size, to see that it runs")
    parser.add_argument("--seconds", type=float, help="of supervised training at most")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    words = parser.parse_args()
    where = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = TINY if words.tiny else Size()
    size = replace(size, seconds=words.seconds or size.seconds)
    with tempfile.TemporaryDirectory() as home:
        found: dict[str, Any] = supervise(size, Path(home, "start"), where)
        print(found, flush=True)
        found |= reinforce(size, Path(home, "start"), Path(home, "runs"))
    found["device"] = torch.cuda.get_device_name() if where.type == "cuda" else "CPU"
    print(json.dumps(found, indent=1))
    if words.out:
        words.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
