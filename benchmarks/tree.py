"""What rows that begin alike cost: forward and backward pass as trees, beside the same rows one by one and beside the floor.

The floor is as many tokens as the tree has, and as many decisions, as rows of the mean length that share nothing, without padding. A
model of about 10 M parameters from a config, float32; the three take turns, and seconds are of the processor, for other processes may
run beside. Groups: eight rows behind one long prompt; the rows of the recipes branched and treerl, which split off where their trunk
was least sure, here anywhere.

The sampler is the native engine with gimbal-tiny: tokens it puts through the model for each token of the trees that it draws (a prompt
once a group, and what each row drew itself), with and without what a row that has just ended leaves to those that split off it.

    python benchmarks/tree.py --out benchmarks/tree.json
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native, NativeEngine
from gimbal.environments.demonstrations import training_tasks
from gimbal.policies.layout import planned
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy, Tokens
from gimbal.workflows.branching import Branching
from gimbal.workflows.runner import Driven, Runner

VOCABULARY, WIDTH = 2048, 320
GROUPS = 2
MODEL = {"hidden_size": WIDTH, "intermediate_size": 3 * WIDTH, "num_hidden_layers": 8, "num_attention_heads": 5}


def policy() -> TokenPolicy:
    torch.manual_seed(0)
    heads = {"num_key_value_heads": 5, "head_dim": 64, "tie_word_embeddings": True}
    return TokenPolicy(Qwen3ForCausalLM(Qwen3Config(vocab_size=VOCABULARY, **MODEL, **heads)), None)


def grown(prompt: int, drawn: int, rows: int, trunks: int, rng: random.Random) -> list[Tokens]:
    """A group: trunks from the prompt, each other row from a place of its trunk."""
    first = [rng.randrange(VOCABULARY) for _ in range(prompt)]
    found: list[list[int]] = []
    for number in range(rows):
        above = [] if number < trunks else found[number % trunks]
        kept = above[: rng.randrange(len(above))] if above else []
        found.append(kept + [rng.randrange(VOCABULARY) for _ in range(drawn - len(kept))])
    return [Tokens.row(first, row) for row in found]


CASES: dict[str, Callable[[random.Random], list[Tokens]]] = {
    "long prompt, 8 rows": lambda rng: grown(384, 48, 8, 8, rng),
    "branched, 8 rows": lambda rng: grown(64, 128, 8, 2, rng),
    "treerl, 10 rows": lambda rng: grown(64, 128, 10, 2, rng),
}


def flat(tokens: int, decisions: int, longest: int) -> Tokens:
    """Rows of one length that share nothing: about so many tokens and decisions."""
    count = round(tokens / longest)
    generator = torch.Generator().manual_seed(1)
    length = round(tokens / count)
    ids = torch.randint(0, VOCABULARY, (count, length), generator=generator)
    prompt_N = torch.full((count,), max(1, length - round(decisions / count)))
    return Tokens(ids_NL=ids, prompt_N=prompt_N, length_N=torch.full((count,), length))


def learner(name: str, repetitions: int) -> dict[str, Any]:
    model = policy()
    sharing = model.shares
    rng = random.Random(0)
    rows = Tokens.stack([row for _ in range(GROUPS) for row in CASES[name](rng)])
    plan = planned(*rows.where, sharing)
    alone = sum(map(len, plan.paths))
    # The decisions that a tree has: of tokens behind the prompts, each once.
    prompts = GROUPS * int(rows.prompt_N[0])
    floor = flat(sum(plan.sizes), sum(plan.sizes) - prompts, round(alone / len(plan.paths)))
    arms = {"alone": (rows, None), "tree": (rows, sharing), "floor": (floor, None)}
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    for repetition in range(repetitions + 1):
        for arm, (decisions, allowed) in arms.items():
            model.__dict__["shares"] = allowed
            start = time.process_time()
            model.evaluate(decisions).logprob_NS.sum().backward()
            if repetition:
                seconds[arm].append(time.process_time() - start)
            model.zero_grad()
    size = {"alone": alone, "tree": sum(plan.sizes), "floor": floor.ids_NL.numel()}
    a_token = {arm: [second / size[arm] for second in seconds[arm]] for arm in arms}
    ratios = [tree / least for tree, least in zip(a_token["tree"], a_token["floor"], strict=True)]
    return {
        "group": name,
        "tokens_alone": alone,
        "tokens_tree": size["tree"],
        "seconds_alone": statistics.median(seconds["alone"]),
        "seconds_tree": statistics.median(seconds["tree"]),
        "alone_by_tree": statistics.median(seconds["alone"]) / statistics.median(seconds["tree"]),
        "tree_by_floor": statistics.median(ratios),
        "tree_by_floor_least": min(ratios),
        "tree_by_floor_most": max(ratios),
    }


def sampler(name: str, workflow: Branching, samples: int, groups: int = 16) -> dict[str, Any]:
    model = CausalLM().load()
    found: dict[str, Any] = {"recipe": name}
    for arm in ("again", "once"):
        live = Driven(engine=Native(slots=64, precision="float32"), workflow=workflow).start(model)
        assert isinstance(live, Runner)
        engine = live.inner
        assert isinstance(engine, NativeEngine)
        engine.extended = arm == "once"
        live.load(0, model.state_dict())
        for index in range(groups):
            for sample in range(samples):
                asked = Sampling(max_length=64)
                live.submit(
                    Request(group=index, task=training_tasks(size=groups)[index], sample=sample, sampling=asked, seed=5)
                )
        rows = [item.rollout for item in drained(live).values()]
        prompts = {row.task.id: row.decisions.cost_N.item() - row.length for row in rows}
        tokens = int(sum(prompts.values())) + sum(row.drawn for row in rows)
        found |= {"tokens": tokens, f"computed_{arm}_by_tokens": engine.computed / tokens}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    record = {
        "threads": 1,
        "repetitions": options.repetitions,
        "parameters": sum(weight.numel() for weight in policy().parameters()),
        "sampler": [],
        "learner": [],
    }
    for name in ("branched", "treerl"):
        run = recipes.load(name)
        workflow = vars(run)["workflow"]
        assert isinstance(workflow, Branching)
        record["sampler"].append(sampler(name, workflow, vars(run)["num_generations"]))
    deep = replace(Branching(), trunks=1, deep=True)
    record["sampler"].append(sampler("branches of branches, 16 rows", deep, 16))
    for name in CASES:
        record["learner"].append(learner(name, options.repetitions))
        print(json.dumps(record["learner"][-1]), flush=True)
    print(json.dumps(record["sampler"], indent=1))
    if options.out:
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
