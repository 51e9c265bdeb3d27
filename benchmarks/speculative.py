"""Seconds a token of the native engine with drafts and without, on a model of about 100 M parameters, 1 to 16 rows at a time.

The arms take turns on the same requests, whose tokens must come out the same; seconds are of the processor, for other processes may
run beside. A Llama from a config, in two states: as it is made, when all tokens are nearly equally likely, and after a few steps of
training on texts of a Markov chain. `acceptance` is the share of tested tokens that were right of late, `drafting` the share of
passes that had drafts. `overlap` is 1 - TV of the model and its rounded copy on the same positions: what rejection sampling would
accept, beside what the same random number accepts. The widths say what a pass over several tokens takes; `slope` is set by them.

    python benchmarks/speculative.py --out benchmarks/speculative.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from gimbal.engines.base import Request, drained
from gimbal.engines.drafting.base import AbstractDrafter
from gimbal.engines.drafting.prompt_lookup import PromptLookup
from gimbal.engines.drafting.self_speculation import RoundedCopy, SelfSpeculation
from gimbal.engines.native import Native, NativeEngine
from gimbal.policies.token import Sampling, TokenPolicy, Tokens
from gimbal.records import Rollout, Task

VOCABULARY, LETTERS, LIKELY = 16384, 96, (0.86, 0.08, 0.04, 0.02)
SLOPES = {"float32": 0.1, "bfloat16": 0.02}  # what the widths below measured


def made() -> TokenPolicy:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        tie_word_embeddings=True,
        max_position_embeddings=1024,
    )
    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    from tokenizers import pre_tokenizers

    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    model = LlamaForCausalLM(config)
    model.generation_config.eos_token_id = VOCABULARY - 1
    return TokenPolicy(model, PreTrainedTokenizerFast(tokenizer_object=words, eos_token="w0", pad_token="w0"))


def chain(rows: int, length: int, seed: int) -> torch.Tensor:
    """Texts in which each of LETTERS words is followed by one of four."""
    generator = torch.Generator().manual_seed(7)
    after = torch.stack([torch.randperm(LETTERS, generator=generator)[:4] for _ in range(LETTERS)])
    generator.manual_seed(seed)
    ids = [torch.randint(0, LETTERS, (rows,), generator=generator)]
    for _ in range(length - 1):
        which = torch.multinomial(torch.tensor(LIKELY), rows, replacement=True, generator=generator)
        ids.append(after[ids[-1], which])
    return torch.stack(ids, 1)


def trained(policy: TokenPolicy, steps: int) -> float:
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=6e-4, weight_decay=0.0)
    loss = torch.tensor(0.0)
    for step in range(steps):
        ids = chain(4, 48, 100 + step)
        loss = policy.model(input_ids=ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def requests(rows: int, length: int, seed: int) -> list[Request]:
    starts = chain(rows, 24, 3).tolist()
    tasks = [Task(id=f"{n}", prompt=" ".join(f"w{token}" for token in text)) for n, text in enumerate(starts)]
    asked = Sampling(max_length=length)
    return [Request(group=n, task=task, sample=0, sampling=asked, seed=seed) for n, task in enumerate(tasks)]


def once(engine: NativeEngine, rows: int, length: int, seed: int) -> tuple[float, dict[tuple[int, int], Rollout]]:
    """Seconds a token of one row; the first, in which prompts are read, does not count. Answers of another seed are other answers."""
    for request in requests(rows, length, seed):
        engine.submit(request)
    engine.step()
    engine.metrics()
    start = time.process_time()
    found = {key: item.rollout for key, item in drained(engine).items()}
    return (time.process_time() - start) / (length - 1), found


def compared(policy: TokenPolicy, state: str, rows: int, o: argparse.Namespace) -> list[dict[str, Any]]:
    engines, slope = {}, SLOPES[o.precision]
    arms: dict[str, AbstractDrafter | None] = {
        "plain": None,
        "self": SelfSpeculation(slope=slope),
        "lookup": PromptLookup(slope=slope),
    }
    for arm, drafter in arms.items():
        engines[arm] = Native(slots=rows, precision=o.precision, drafter=drafter).start(policy)
        engines[arm].load(0, policy.state_dict())
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    other, said = dict.fromkeys(arms, 0), {}
    for repetition in range(o.repetitions + 1):
        texts = {}
        for arm, engine in engines.items():
            taken, texts[arm] = once(engine, rows, o.length, repetition)
            said[arm] = engine.metrics()
            if repetition:
                seconds[arm].append(taken)
        other = {
            arm: other[arm] + sum(not same(rollout, texts["plain"][key]) for key, rollout in texts[arm].items())
            for arm in texts
        }
    plain = statistics.median(seconds["plain"])
    return [
        {
            "precision": o.precision,
            "state": state,
            "rows": rows,
            "drafts": arm,
            "ms_a_token": 1000 * statistics.median(taken),
            "least": 1000 * min(taken),
            "most": 1000 * max(taken),
            "plain_by_this": plain / statistics.median(taken),
            "acceptance": round(said[arm].get("drafts/acceptance", 0.0), 2),
            "drafting": round(said[arm].get("drafts/drafting_frac", 0.0), 2),
            "passes_a_token": round(said[arm].get("drafts/passes_per_token", 1.0), 2),
            "other_texts": other[arm],
        }
        for arm, taken in seconds.items()
    ]


def same(one: Rollout, other: Rollout) -> bool:
    assert isinstance(one.decisions, Tokens) and isinstance(other.decisions, Tokens)
    return torch.equal(one.decisions.ids_NL, other.decisions.ids_NL)


@torch.inference_mode()
def overlap(policy: TokenPolicy, state: str) -> dict[str, Any]:
    """Of the model and its rounded copy: what each rule would accept, on texts of the chain."""
    ids = chain(2, 48, 5)
    copy = RoundedCopy(policy.model)
    copy.load()
    p, q = (model(input_ids=ids).logits[0:2, 16:].double().softmax(-1) for model in (policy.model, copy.module))
    above_p, above_q = p.cumsum(-1), q.cumsum(-1)
    common = (above_p.minimum(above_q) - (above_p - p).maximum(above_q - q)).clamp(min=0).sum(-1)
    entropy = torch.special.entr(p).sum(-1)
    return {
        "state": state,
        "entropy": float(entropy.mean()),
        "same_random_number": float(common.mean()),
        "overlap": float(p.minimum(q).sum(-1).mean()),
    }


@torch.inference_mode()
def widths(policy: TokenPolicy, precision: str) -> list[dict[str, Any]]:
    engine = Native(slots=1, precision=precision).start(policy)
    engine.load(0, policy.state_dict())
    copy = RoundedCopy(engine.copy.module)
    copy.load()
    found = []
    for width in (1, 2, 4, 6, 9, 16, 36):
        row: dict[str, Any] = {"precision": precision, "tokens_in_a_pass": width}
        for name, module in (("model", engine.copy.module), ("rounded", copy.module)):
            taken = []
            for _ in range(4):
                start = time.process_time()
                module(input_ids=torch.zeros(width, 1, dtype=torch.long), use_cache=False)
                taken.append(time.process_time() - start)
            row[f"{name}_ms"] = 1000 * statistics.median(taken[1:])
        found.append(row)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--length", type=int, default=33)
    parser.add_argument("--steps", type=int, default=24, help="of training")
    parser.add_argument("--precision", nargs="+", default=["float32", "bfloat16"])
    o = parser.parse_args()
    torch.set_num_threads(1)
    precisions, policy = o.precision, made()
    record: dict[str, Any] = {
        "threads": 1,
        "repetitions": o.repetitions,
        "parameters": sum(weight.numel() for weight in policy.parameters()),
        "training_steps": o.steps,
        "turns": [],
        "overlaps": [overlap(policy, "as made")],
        "widths": [],
    }
    for state in ("as made", "trained"):
        if state == "trained":
            record["training_loss"] = trained(policy, o.steps)
            record["overlaps"].append(overlap(policy, state))
        for o.precision in precisions:
            if state == "as made":
                record["widths"] += widths(policy, o.precision)
            for rows in (1,) if state == "as made" else (1, 2, 4, 16):
                record["turns"] += compared(policy, state, rows, o)
                print(*record["turns"][-3:], sep="\n", flush=True)
                if o.out:
                    o.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
