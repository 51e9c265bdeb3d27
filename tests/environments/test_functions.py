"""Python functions as tools: their schemas, calls that cannot be, and a row that is answered by one, as text and as a chat."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "workflows")]
import own_tools
from dice import POLICY
from spoken import driven

from gimbal.config import Text
from gimbal.config.parts import plain, read
from gimbal.environments.base import AbstractEnvironmentSpec, Failure
from gimbal.environments.functions import Functions
from gimbal.environments.signatures import schema
from gimbal.environments.tools import Calculator
from gimbal.policies.token import CausalLM
from gimbal.records import Part, Task
from gimbal.workflows.dialogue import Dialogue

TASK, CHAT = Task(id="a"), Task(id="c", columns={"messages": [{"role": "user", "content": "hi"}]})
TEMPLATE = (
    "{% for tool in tools or [] %}[{{ tool.function.name }}]{% endfor %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}{% if m.role == 'assistant' %}<eos>{% endif %}!{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def test_the_schema_of_a_signature():
    said = schema(own_tools.search)["function"]
    assert said["name"] == "search" and said["description"] == "Find pages. The best come first."
    assert said["parameters"] == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "what to look for, in plain words"},
            "limit": {"type": "integer", "description": "how many at most", "default": 5},
        },
        "required": ["query"],
    }
    said = schema(own_tools.add)["function"]
    assert said["description"] == "Adds." and said["parameters"]["required"] == ["a"]
    assert said["parameters"]["properties"] == {
        "a": {"type": "integer", "description": "the first"},
        "b": {"type": "number", "description": "the second", "default": 0.5},
        "how": {"type": "string", "enum": ["up", "down"], "default": "up"},
        "more": {"type": "array", "items": {"type": "integer"}, "nullable": True, "default": None},
    }


def test_it_is_the_schema_that_transformers_makes():
    """Of a function that both take; transformers wants a docstring with every argument."""
    from transformers.utils import get_json_schema

    def pay(to: str, amount: float, tags: list[str] | None = None, note: dict[str, int] | None = None):
        """Pay somebody.

        Args:
            to: who gets it
            amount: how much
            tags: any
            note: none
        """

    mine, theirs = schema(pay), get_json_schema(pay)
    for one in mine["function"]["parameters"]["properties"].values():
        one.pop("default", None)  # they leave it out
    assert mine == theirs


def bare(x): ...
def starred(*x: int): ...
def keyed(**x: int): ...
def placed(x: int, /): ...
def strange(x: Path): ...
def unwritten(x: int = object()): ...  # type: ignore
def called(x: Callable[[int], int]): ...
def lost(x: "Nowhere"): ...  # noqa: F821


@pytest.mark.parametrize(
    "function, sentence",
    [
        (bare, r"bare\(x\) has no type"),
        (starred, r"takes \*x, which has no schema"),
        (keyed, r"takes \*\*x"),
        (placed, "positional only"),
        (strange, r"strange\(x\) is of the type pathlib.*Path, which has no schema"),
        (unwritten, r"the default of unwritten\(x\) is .* JSON does not hold"),
        (called, "which has no schema here"),
        (lost, "types of lost cannot be read: name 'Nowhere'"),
        (len, "len.* is a builtin"),
        (lambda x: x, "a lambda has not"),
    ],
)
def test_a_signature_without_a_schema_is_refused(function, sentence):
    with pytest.raises(ValueError, match=sentence):
        Functions(functions=(function,))


def test_names_are_told_apart_and_there_is_one():
    with pytest.raises(ValueError, match="several functions called add"):
        Functions(functions=(own_tools.add, own_tools.add))
    with pytest.raises(ValueError, match="no functions"):
        Functions(functions=())


def test_a_call_is_answered():
    tool = Functions(functions=(own_tools.search, own_tools.add, own_tools.late))
    assert tool(TASK, "Well. " + call("search", query="x")) == "\n<tool_response>\n5 pages of x\n</tool_response>\n"
    assert json.loads(tool(CHAT, call("add", a=1, more=[2]))[0]["content"]) == {"sum": 1.5, "how": "up", "more": [2]}
    assert tool(CHAT, call("late", day="may")) == [{"role": "tool", "name": "late", "content": "late on may"}]
    assert tool(TASK, "nothing was called") is None
    own = '<tool_call>{"name": "search", "arguments": "{\\"query\\": \\"y\\"}"}</tool_call>\n'  # as clients have them
    assert "5 pages of y" in tool(TASK, own)


@pytest.mark.parametrize(
    "text, sentence",
    [
        (call("serch", query="x"), "there is no tool serch; did you mean search?; there are search, add"),
        (call("search"), "search needs the argument query"),
        (call("search", query=3), "query is 3; it must be"),
        (call("search", query="x", limt=3), "search has no argument limt; did you mean limit?"),
        (call("add", a="many"), "a is 'many'; it must be"),
        (call("add", a=1, how="left"), "how is 'left'; it must be one of up, down"),
        ("<tool_call>{name: search}</tool_call>", 'a call is <tool_call>{"name": NAME'),
        ("<tool_call>[1]</tool_call>", "a call is"),
        ("</tool_call>", "a call is"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "a call is"),
    ],
)
def test_a_call_that_cannot_be_is_answered_with_a_sentence(text, sentence):
    own_tools.CALLS.clear()
    (said,) = Functions(functions=(own_tools.search, own_tools.add))(CHAT, text)
    assert said["content"].startswith("error: ") and sentence in said["content"]
    assert not own_tools.CALLS


def test_it_is_saved_and_typed_by_its_place():
    file = f"{own_tools.__file__}:search"
    typed = read(Text(file), AbstractEnvironmentSpec, "tool")
    assert isinstance(typed, Functions) and typed.schemas[0]["function"]["name"] == "search"
    dialogue = Dialogue(tool=Functions(functions=(own_tools.search,)))
    assert read(plain(dialogue), Dialogue, "workflow") == dialogue
    assert isinstance(read(Text("Calculator()"), AbstractEnvironmentSpec, "tool"), Calculator)


@pytest.fixture(scope="module")
def chatty():
    policy = CausalLM().load()
    policy.tokenizer.chat_template = TEMPLATE
    return policy


def test_in_a_chat_the_template_offers_the_tools_and_writes_the_answer(chatty):
    tool = Functions(functions=(own_tools.search, own_tools.add))
    episode, prompt = driven(chatty, CHAT, tool, call("search", query="x"), "so it is<eos>")
    assert prompt == "[search][add]user:hi!assistant:"
    row = episode.last
    said = row.part_S == Part.OBSERVATION
    ids = row.decisions.ids_NL[0, int(row.decisions.prompt_N[0]) :]
    assert chatty.tokenizer.decode(ids[said]) == "<eos>!tool:5 pages of x!assistant:"
    assert (row.mask_S == ~said).all() and row.turn_S.max() == 1 and not episode.error
    again = chatty.tokenizer.apply_chat_template(
        [
            *CHAT.columns["messages"],
            {"role": "assistant", "content": call("search", query="x")},
            {"role": "tool", "content": "5 pages of x"},
            {"role": "assistant", "content": "so it is"},
        ],
        tools=list(tool.schemas),
        tokenize=False,
    )
    assert again == prompt + chatty.tokenizer.decode(ids) + "!"  # what the template makes of the whole conversation


def test_a_turn_that_ended_itself_is_not_ended_twice(chatty):
    """An engine may stop a row by its end token; what stands behind it then begins after that."""
    row = driven(chatty, CHAT, Calculator(), "so<eos>")[0].last
    told = chatty.encode_told(row, [{"role": "tool", "content": "5"}])
    assert chatty.decode(told) == "!tool:5!assistant:"


def test_a_template_without_a_place_for_answers_is_refused(chatty):
    policy = CausalLM().load()
    policy.tokenizer.chat_template = TEMPLATE.replace(
        "{{ m.content }}", "{% if m.role != 'tool' %}{{ m.content }}{% endif %}"
    )
    with pytest.raises(ValueError, match="does not read messages of the role tool"):
        driven(policy, CHAT, Functions(functions=(own_tools.search,)), call("search", query="x"), "<eos>")


def test_of_a_text_the_answer_is_text():
    tool = Functions(functions=(own_tools.search,))
    episode, _ = driven(POLICY, Task(id="t", prompt="hi\n"), tool, call("search", query="x"), "<eos>")
    assert "\n<tool_response>\n5 pages of x\n</tool_response>\n" in episode.last.text


def no_room(x: int) -> str:
    raise Failure("no container is free", fault="sandbox")


@pytest.mark.parametrize(
    "function, arguments, fault, sentence",
    [
        (own_tools.breaks, {"why": "disk"}, "tool", "OSError: disk"),
        (own_tools.odd, {"x": 1}, "tool", "odd returned set"),
        (no_room, {"x": 1}, "sandbox", "no container is free"),
    ],
)
def test_what_breaks_is_a_failure_of_its_kind_and_no_reward(function, arguments, fault, sentence):
    tool = Functions(functions=(function,))
    episode, _ = driven(POLICY, Task(id="t", prompt="hi\n"), tool, call(function.__name__, **arguments))
    assert episode.fault == fault and sentence in episode.error
    assert episode.earned == 0 and episode.stop == "error"


def test_a_fault_is_one_of_four():
    with pytest.raises(ValueError, match="choose provider, tool, sandbox, environment"):
        Failure("x", fault="weather")
