"""Trained tokens are sampled tokens: episodes of several turns with calls of tools, over every way from a sampler to a batch.

    python benchmarks/token_exactness.py --episodes 1000
    .venv-vllm/bin/python benchmarks/token_exactness.py --episodes 1000 --ways vllm

What is drawn is a script (a random policy calls no tools): texts with calls in every spelling, cut into tokens of a BPE vocabulary in
ways that its tokenizer would not cut them. So whoever decodes, lets a template write the history anew and encodes it again trains on
other tokens than were drawn. ``wrong``: tokens that differ, over all. ``rebuilt``: the share of episodes for which that way would.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tool_agent
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from gimbal.dataflow.packing import pack
from gimbal.engines import decoding
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.engines.vllm import VLLM
from gimbal.environments.functions import Functions
from gimbal.learning.weight_sync.receipts import load
from gimbal.policies.token import CausalLM, Sampling, TokenPolicy, Tokens
from gimbal.records import Drop, Episode, Group, Task
from gimbal.report.metrics import rollout_metrics
from gimbal.serve.server import CompletionServer
from gimbal.workflows.agent import Agent
from gimbal.workflows.base import AbstractWorkflow
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven

HERE = Path(__file__).parent

END, CALL = "<|im_end|>", "</tool_call>"
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool.function.name }} {% endfor %}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    '{% for call in message.tool_calls or [] %}<tool_call>\n{{ \'{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{ call.function.arguments | tojson }}{{ '}\n</tool_call>' }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = [
    "one",
    "17",
    "4",
    "page",
    "is far;",
    "I know:",
    "look",
    "add 2",
    "\u00e9\u00e8",
    "\u4f60",
    "{}",
    "[]",
    "\t",
    "",
    "-",
]
LONGEST = 1024


def made(directory: Path) -> TokenPolicy:
    """A BPE tokenizer, its template, and a model of no use with its vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<pad>", "<|im_start|>", END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    draw = random.Random(0)
    tokenizer.train_from_iterator((turn(draw) for _ in range(2000)), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token=END)
    fast.chat_template = TEMPLATE
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(fast),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,  # of those that vLLM computes on a CPU
        max_position_embeddings=4 * LONGEST,
        tie_word_embeddings=True,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    fast.save_pretrained(directory)
    return CausalLM(model=str(directory)).load()


def turn(draw: random.Random) -> str:
    """What a model might say: words, and often a call in one of the ways in which models write it."""
    words = " ".join(draw.choices(WORDS, k=draw.randrange(1, 6)))
    if draw.random() < 0.3:
        return words
    name = draw.choice(["add", "look", "add", "lost"])
    arguments = {"a": draw.randrange(1000), "b": draw.randrange(9)} if name == "add" else {"what": words}
    call = {"name": name, "arguments": arguments} if draw.random() < 0.7 else {"arguments": arguments, "name": name}
    separators = draw.choice([(", ", ": "), (",", ":"), (" , ", " : ")])
    body = json.dumps(
        call, separators=separators, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, None, 1])
    )
    space = draw.choice(["\n", "", " "])
    return f"{draw.choice(['', words])}<tool_call>{space}{body}{space}{CALL}"


class Script:
    """What is drawn, whatever the distribution is; ``drawn`` is all of it, in order. ``paused``: a call ends its turn by itself."""

    def __init__(self, policy: TokenPolicy, seed: int, paused: bool) -> None:
        self.policy, self.draw, self.paused = policy, random.Random(seed), paused
        self.pieces = {policy.tokenizer.convert_ids_to_tokens(i): i for i in range(len(policy.tokenizer))}
        self.drawn: list[int] = []
        self.left: Iterator[int] = iter(())

    def cut(self, text: str) -> list[int]:
        """Tokens of the text, each the longest that fits or, half of the time, a shorter one."""
        letters = "".join(
            piece for piece, _ in self.policy.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
        )
        ids, at = [], 0
        while at < len(letters):
            fits = [end for end in range(at + 1, min(len(letters), at + 12) + 1) if letters[at:end] in self.pieces]
            end = fits[-1] if self.draw.random() < 0.5 else self.draw.choice(fits)
            ids.append(self.pieces[letters[at:end]])
            at = end
        return ids

    def __call__(self, logits_BV: torch.Tensor, uniform_B: torch.Tensor, rows: Any) -> Any:
        assert len(logits_BV) == 1, "one row at a time"
        _, _, logprob_BV = DRAW(logits_BV, uniform_B, rows)
        token_B = torch.tensor([self.next()])
        return token_B, logprob_BV[0, token_B], logprob_BV

    def next(self) -> int:
        token = next(self.left, None)
        if token is None:
            text = turn(self.draw)
            end = [] if self.paused and text.endswith(CALL) else [self.policy.end_ids[0]]
            self.left = iter([*self.cut(text), *end])
            token = next(self.left)
        self.drawn.append(token)
        return token


DRAW = decoding.draw


def task(number: int) -> Task:
    messages = [{"role": "user", "content": f"{number}: what is there?"}]
    return Task(id=f"t{number}", columns={"messages": messages})


def native(policy: TokenPolicy, workflow: AbstractWorkflow, count: int, sampling: Sampling) -> list[Episode]:
    """Over the runner: one episode after the other, so that the script is theirs in order."""
    engine = Driven(engine=Native(slots=1, precision="float32"), workflow=workflow).start(policy)
    return driven(engine, policy, count, sampling)


def of_vllm(
    policy: TokenPolicy, workflow: AbstractWorkflow, count: int, sampling: Sampling, script: Script
) -> list[Episode]:
    """As ``native``, with vLLM: the script takes the place of what its sampler drew, behind its own sampling."""
    engine = Driven(engine=VLLM(slots=1, precision="float32", cache_gb=0.25), workflow=workflow).start(policy)
    sampler: Any = engine.inner._runner.sampler
    own = sampler.sample

    def sample(logits_BV: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        token_B, logprob_BV = own(logits_BV, *arguments, **named)
        assert len(token_B) == 1, "one row at a time"
        return token_B.fill_(script.next()), logprob_BV

    sampler.sample = sample
    return driven(engine, policy, count, sampling)


def driven(engine: Any, policy: TokenPolicy, count: int, sampling: Sampling) -> list[Episode]:
    load(engine, policy, 0)
    found = []
    for number in range(count):
        engine.submit(Request(group=number, task=task(number), sample=0, sampling=sampling, seed=1))
        outcome = drained(engine)[number, 0].outcome
        assert not isinstance(outcome, Drop) and not outcome.error, outcome
        found.append(outcome)
    return found


def served(policy: TokenPolicy, count: int, sampling: Sampling) -> list[Episode]:
    """Over gimbal serve: the agent asks there, and its sessions become episodes."""
    engine = Native(slots=1, precision="float32").start(policy)
    load(engine, policy, 0)
    found = []
    with CompletionServer(engine, policy, sampling, fixed=True) as server:
        for number in range(count):
            score = tool_agent.solve(f"{server.url}/{number}/v1", {"messages": task(number).columns["messages"]})
            server.reward(str(number), score)
            episode = server.episode(str(number), task(number), 0)
            assert isinstance(episode, Episode), episode
            found.append(episode)
    return found


def trained(episode: Episode) -> list[list[int]]:
    """The tokens that the learner is given as decisions that count, row by row, in the order in which they were drawn."""
    batch = pack([Group(index=0, task=episode.task, episodes=(episode,))])
    assert isinstance(batch.decisions, Tokens)
    return [
        batch.decisions.label_NS[n, : batch.mask_NS.shape[1]][batch.mask_NS[n]].tolist()
        for n in range(len(batch.mask_NS))
    ]


def rebuilt(policy: TokenPolicy, episode: Episode) -> bool:
    """Whether decoding the whole last row and encoding its text again gives other tokens."""
    tokens = episode.last.decisions
    assert isinstance(tokens, Tokens)
    ids = tokens.ids_NL[0, : int(tokens.length_N[0])].tolist()
    return policy.tokenizer.encode(policy.tokenizer.decode(ids), add_special_tokens=False) != ids


def measured(way: str, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        policy = made(Path(directory))
    script = Script(policy, seed=3, paused=way in ("dialogue", "vllm"))
    decoding.draw = script
    try:
        flow = Dialogue(tool=Functions(functions=(tool_agent.add, tool_agent.look)), answers=4, overlap=0)
        if way == "dialogue":
            episodes = native(policy, flow, count, Sampling(max_length=LONGEST))
        elif way == "vllm":
            episodes = of_vllm(policy, flow, count, Sampling(max_length=LONGEST), script)
        elif way == "agent":
            episodes = native(
                policy, Agent(program=f"{HERE / 'tool_agent.py'}:solve"), count, Sampling(max_length=LONGEST)
            )
        else:
            episodes = served(policy, count, Sampling(max_length=LONGEST))
    finally:
        decoding.draw = DRAW
    return compared(policy, script, episodes)


def compared(policy: TokenPolicy, script: Script, episodes: list[Episode]) -> dict[str, float]:
    sampled, wrong, at = script.drawn, 0, 0
    for episode in episodes:
        rows = sorted(trained(episode), key=lambda row: _place(sampled, row, at))
        told = [token for row in rows for token in row]
        wrong += sum(a != b for a, b in zip(told, sampled[at : at + len(told)], strict=True))
        at += len(told)
    wrong += abs(at - len(sampled))
    turns = sum(int(row.turn_S.max()) + 1 for episode in episodes for row in episode.rows if row.turn_S is not None)
    groups = [Group(index=n, task=one.task, episodes=(one,)) for n, one in enumerate(episodes)]
    return {
        "episodes": len(episodes),
        "turns": turns,
        "tokens": len(sampled),
        "wrong": wrong,
        "broken": rollout_metrics(groups).get("rows/broken_frac", 0.0),
        "rebuilt": sum(rebuilt(policy, episode) for episode in episodes) / len(episodes),
    }


def _place(sampled: list[int], row: list[int], start: int) -> int:
    """Where a row begins among what was drawn."""
    return next((at for at in range(start, len(sampled)) if sampled[at : at + len(row)] == row), len(sampled))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--ways", nargs="*", default=["dialogue", "agent", "serve"])
    parser.add_argument("--out", type=Path, default=HERE / "token_exactness.json")
    o = parser.parse_args()
    ways = json.loads(o.out.read_text())["ways"] if o.out.is_file() else []
    for way in o.ways:
        ways = [row for row in ways if row["way"] != way] + [{"way": way, **measured(way, o.episodes)}]
        print(ways[-1], flush=True)
        o.out.write_text(json.dumps({"ways": ways}, indent=1) + "\n")


if __name__ == "__main__":
    main()
