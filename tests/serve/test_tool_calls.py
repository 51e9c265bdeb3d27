"""Calls of tools, in the text that models write them in."""

from gimbal.policies.token import Sampling
from gimbal.serve.asked import Asked
from gimbal.serve.replies import _message


def asked(tools):
    return Asked(
        session="", prompts=(), messages=[], tools=tools, sampling=Sampling(), n=1, seed=None, stream=False, usage=False
    )


TEXT = 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": {"b": 1}}}\n</tool_call>'


def test_a_call_becomes_openais():
    message = _message(TEXT, asked([{}]))
    assert message["content"] == "Let me see."
    (call,) = message["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a": {"b": 1}}'}


def test_without_tools_and_without_json_it_stays_text():
    assert _message(TEXT, asked(None)) == {"role": "assistant", "content": TEXT}
    broken = TEXT.replace('"name"', "name")
    assert _message(broken, asked([{}])) == {"role": "assistant", "content": broken}
