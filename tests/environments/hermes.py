"""A small random chat model whose template offers tools as Hermes' and Qwen's do, and an engine that says what a solution says."""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))
import zoo_families as families
from transformers import AutoTokenizer

from gimbal.engines.base import CONTINUE, DRAW, AbstractEngine, AbstractEngineSpec, Finished, Request
from gimbal.policies.token import Tokens
from gimbal.records import Rollout

TEMPLATE = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- '# Tools\\n<tools>' }}
    {%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
    {{- '\\n</tools>\\nA call is <tool_call>\\n{"name": NAME, "arguments": ARGUMENTS}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- elif message.role != 'system' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def saved(directory, window=60_000):
    """Its directory."""
    place = families.saved("qwen3", Path(directory), max_position_embeddings=window)
    tokenizer = AutoTokenizer.from_pretrained(place)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(place)
    return place


@dataclass(kw_only=True)
class Saying:
    request: Request
    prompt: list
    turn: int = 0
    drawn: list = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Solver(AbstractEngineSpec):
    """Says turn after turn of what ``solution`` gives for a task (nothing, where it is at its end)."""

    solution: object

    @property
    def can(self):
        return frozenset({DRAW, CONTINUE})

    def start(self, policy):
        return SolverEngine(policy, self.solution)


class SolverEngine(AbstractEngine):
    """One row a step, so that others wait in the middle of theirs. Nothing of it but its rows is state."""

    version, tolerance = 0, 0.0

    def __init__(self, policy, solution):
        self.policy, self.solution, self.rows = policy, solution, []

    @property
    def in_flight(self):
        return len(self.rows)

    def submit(self, request):
        self.rows.append(Saying(request=request, prompt=self.policy.encode_task(request.task)))

    def extend(self, request, rollout, told=(), *, first=None):
        ids, start = rollout.decisions.ids_NL[0].tolist(), int(rollout.decisions.prompt_N[0])
        turn = 1 if rollout.turn_S is None else int(rollout.turn_S.max()) + 1
        self.rows.append(Saying(request=request, prompt=ids[:start], turn=turn, drawn=[*ids[start:], *told]))

    def step(self):
        row = self.rows.pop(0)
        turns = self.solution(row.request.task)
        text = turns[row.turn] if row.turn < len(turns) else ""
        said = self.policy.tokenizer.encode(text, add_special_tokens=False)
        paused = text.endswith(row.request.sampling.stop or ("\n\n\n",))  # at a trigger of a tool
        drawn = [*row.drawn, *said, *([] if paused else self.policy.end_ids[:1])]
        assert len(drawn) <= row.request.sampling.max_length, "the solution has no room"
        zero_S = torch.zeros(len(drawn))
        made = Rollout(
            task=row.request.task, sample=row.request.sample, decisions=Tokens.row(row.prompt, drawn), behavior_S=zero_S,
            version_S=zero_S.long(), mask_S=zero_S == 0, reward_S=zero_S, stop="stop", sampling=row.request.sampling,
            text=self.policy.decode(drawn),
        )  # fmt: skip
        return [Finished.of(row.request.key, made)]

    def state_dict(self):
        return {"rows": [replace(row, drawn=[*row.drawn]) for row in self.rows]}

    def load_state_dict(self, state):
        self.rows = [replace(row, drawn=[*row.drawn]) for row in state["rows"]]

    def cancel(self, key): ...
    def score(self, rollout): ...
    def load(self, version, state): ...
