"""An agent with OpenAI's client and tools: a call is the same whole and streamed, and the conversation becomes one row."""

import json

import pytest
import torch

from gimbal.engines import decoding
from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM, Sampling
from gimbal.serve.server import CompletionServer

TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool.function.name }} {% endfor %}"
    "{% for message in messages %}{{ message.role }}:{{ message.content }}"
    '{% for call in message.tool_calls or [] %}<tool_call>{{ \'{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{{ call.function.arguments | tojson }}{{ '}</tool_call>' }}{% endfor %}"
    "{% if message.role == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
)
CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def client(monkeypatch):
    """Of a server whose sampler draws a call of a tool and its end, whatever the distribution is."""
    openai = pytest.importorskip("openai")
    policy = CausalLM().load()
    policy.tokenizer.chat_template = TEMPLATE
    script = [*policy.tokenizer.encode(CALL, add_special_tokens=False), policy.end_ids[0]]
    drawn, draw = [], decoding.draw

    def scripted(logits_BV, uniform_B, rows):
        _, _, logprob_BV = draw(logits_BV, uniform_B, rows)
        token_B = torch.tensor([script[len(drawn) % len(script)]])
        drawn.append(int(token_B))
        return token_B, logprob_BV[0, token_B], logprob_BV

    monkeypatch.setattr(decoding, "draw", scripted)
    engine = Native(slots=1, precision="float32").start(policy)
    engine.load(0, policy.state_dict())
    with CompletionServer(engine, policy, Sampling(max_length=len(script) + 5), name="tiny") as server:
        yield openai.OpenAI(base_url=f"{server.url}/agent/v1", api_key="none", max_retries=0), server


@pytest.mark.slow  # openai takes seconds to import
def test_a_streamed_call_is_the_whole_one_and_its_answer_goes_on_from_the_tokens(client):
    client, server = client
    messages = [{"role": "user", "content": "1 + 1"}]
    whole = client.chat.completions.create(model="tiny", messages=messages, tools=[TOOL]).choices[0]
    assert whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    ended, streamed = None, {}
    for piece in client.chat.completions.create(model="tiny", messages=messages, tools=[TOOL], stream=True):
        (choice,) = piece.choices
        ended = choice.finish_reason or ended
        for part in choice.delta.tool_calls or ():
            held = streamed.setdefault(part.index, {"id": "", "name": "", "arguments": ""})
            held["id"] += part.id or ""
            held["name"] += part.function.name or ""
            held["arguments"] += part.function.arguments or ""
    assert ended == "tool_calls" and list(streamed) == [0] and streamed[0]["id"]
    assert (streamed[0]["name"], json.loads(streamed[0]["arguments"])) == ("add", {"a": 1})
    messages += [
        whole.message.model_dump(exclude_none=True) | {"content": ""},
        {"role": "tool", "tool_call_id": call.id, "content": "2"},
    ]
    client.chat.completions.create(model="tiny", messages=messages, tools=[TOOL])
    rows = server.take("agent").rows
    assert [len(row.turn_S.unique()) for row in rows] in ([2, 1], [1, 2]), (
        "the answer of the tool goes on where the call ended"
    )
