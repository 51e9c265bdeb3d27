"""Calls of tools, in the text that models write them in."""

from gimbal.environments.program import message

TEXT = 'Let me see.\n<tool_call>\n{"name": "add", "arguments": {"a": {"b": 1}}}\n</tool_call>'


def test_a_call_becomes_openais():
    made = message(TEXT, [{}])
    assert made["content"] == "Let me see."
    (call,) = made["tool_calls"]
    assert call["function"] == {"name": "add", "arguments": '{"a": {"b": 1}}'}


def test_without_tools_and_without_json_it_stays_text():
    assert message(TEXT, None) == {"role": "assistant", "content": TEXT}
    broken = TEXT.replace('"name"', "name")
    assert message(broken, [{}]) == {"role": "assistant", "content": broken}
