"""Memory of two GRPO steps of a 0.5 B model in one process, beside what the formula of docs/memory.md predicts.

A Qwen2 architecture (vocabulary of 151,936) with random weights draws 8 rollouts of 64 tokens a step and is trained on them. Each row
is a process of its own; "measured" is the most main memory that it held, start and imports included. Where nothing else is said weights
are float32 and computed in bfloat16 (`mixed_precision=bf16`). The sampler is the native engine in bfloat16.

    python benchmarks/memory.py --out benchmarks/memory.json                 # an hour on one busy core; 12 GB
    python benchmarks/memory.py --sizes 0.1 --settings full,lora             # small ones first
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gimbal.advantages import GroupNormalized
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.records import Group
from gimbal.rewards.base import AbstractReward
from gimbal.runtime.local import Trainer
from gimbal.runtime.memory import Shape, predicted
from gimbal.runtime.run import Run

SIZES: dict[str, dict[str, int]] = {  # Qwen2.5-0.5B's own config, and a fifth of it
    "0.5": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
    },
    "0.1": {
        "hidden_size": 448,
        "intermediate_size": 2432,
        "num_hidden_layers": 16,
        "num_attention_heads": 7,
        "num_key_value_heads": 1,
    },
}
SETTINGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # of the policy, of the optimization
    "full": ({"mixed_precision": "bf16"}, {"checkpointing": True}),
    "full, no checkpointing": ({"mixed_precision": "bf16"}, {}),
    "full, float32": ({}, {"checkpointing": True}),
    "full, moments in bfloat16": ({"mixed_precision": "bf16"}, {"checkpointing": True, "optimizer_dtype": "bfloat16"}),
    "full, 8-bit AdamW": ({"mixed_precision": "bf16"}, {"checkpointing": True, "optimizer": "adamw_8bit"}),
    "full, bfloat16 throughout": ({"dtype": "bfloat16"}, {"checkpointing": True}),
    "lora": ({"mixed_precision": "bf16", "lora": LoRA(rank=16)}, {"checkpointing": True}),
}


@dataclass(frozen=True, kw_only=True)
class Even(AbstractReward):
    """The share of even tokens: most tokens of so large a vocabulary are no text to the tokenizer, and half of them are even."""

    name: str = "even"

    def __call__(self, group: Group) -> list[float | None]:
        chosen = [r.decisions for r in group.rollouts]
        return [float((x.label_NS % 2 == 0).float().mean()) for x in chosen if isinstance(x, Tokens)]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One setting of one size."""

    setting: str
    parameters: int
    trained: int
    measured_gb: float
    predicted_gb: float
    ratio: float
    bytes_a_parameter: float
    step_s: float


def model(directory: Path, size: str) -> None:
    """A config and gimbal-tiny's tokenizer: the weights are drawn as it is loaded."""
    from transformers import AutoTokenizer, Qwen2Config

    Qwen2Config(**SIZES[size], vocab_size=151_936, tie_word_embeddings=True).save_pretrained(directory)
    AutoTokenizer.from_pretrained(CausalLM().path).save_pretrained(directory)


def run_of(directory: Path, setting: str) -> Run:
    policy, optimization = SETTINGS[setting]
    return Run(
        policy=replace(CausalLM(model=str(directory), fresh=True), **policy),
        engine=Native(slots=8, precision="bfloat16"),
        tasks=Rows(rows=[{"prompt": f"State the final answer: {n} + {n + 3} =\n"} for n in range(20, 60)]),
        sampling=Sampling(max_length=64),
        rewards=(Even(),),
        prompts_per_step=2,
        num_generations=4,
        max_staleness=0,
        advantage=GroupNormalized(),
        objective=ClippedRatio(),
        optimization=Optimization(learning_rate=1e-6, **optimization),
        threads=1,
    )


def measure(directory: Path, setting: str) -> Row:
    run = run_of(directory, setting)
    trainer = Trainer(run)
    start = time.perf_counter()
    for _ in range(2):
        metrics = trainer.advance()[0]
    assert metrics["grad_norm"] > 0, "nothing was learned, so not all was held"
    step_s = (time.perf_counter() - start) / 2
    prompt = max(len(trainer.policy.encode_task(run.tasks[i])) for i in range(len(run.tasks)))
    shape = Shape.of(str(directory))
    expected = sum(predicted(run, shape, prompt).values())
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    measured = int(line.split()[1]) * 1024
    return Row(
        setting=setting,
        parameters=shape.weights,
        trained=sum(w.numel() for w in trainer.policy.parameters() if w.requires_grad),
        measured_gb=measured / 1e9,
        predicted_gb=expected / 1e9,
        ratio=measured / expected,
        bytes_a_parameter=measured / shape.weights,
        step_s=step_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sizes", default="0.5")
    parser.add_argument("--settings", default=";".join(SETTINGS), help="with ; between")
    parser.add_argument("--one", type=Path, help="this setting in this process, of the model there")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(vars(measure(arguments.one, arguments.settings))))
        return
    rows = []
    for size in arguments.sizes.split(","):
        with tempfile.TemporaryDirectory() as where:
            model(Path(where), size)
            for setting in arguments.settings.split(";"):
                command = [sys.executable, __file__, "--one", where, "--settings", setting]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    sys.exit(done.stderr[-2000:])
                rows.append(json.loads(done.stdout.splitlines()[-1]))
                print(rows[-1], flush=True)
    if arguments.out:
        import torch

        arguments.out.write_text(json.dumps({"torch": torch.__version__, "threads": 1, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
