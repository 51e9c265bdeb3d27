"""Calls are read in one place, and an environment that answers whole turns of a chat gets their text and no other."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "workflows")]
import hermes

from gimbal.engines.base import Request, drained
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, Moment
from gimbal.environments.calls import FORM, answer, calls, without, written
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Part, Task
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven


def test_calls_in_their_order_and_what_stands_beside_them():
    text = f"So.\n{written('a', {'x': [1, {'y': 'é'}]})} and {written('b', {})} ok"
    assert [(call.name, dict(call.arguments), call.wrong) for call in calls(text)] == [
        ("a", {"x": [1, {"y": "é"}]}, ""),
        ("b", {}, ""),
    ]
    assert without(text) == "So.\n and  ok" and calls("nothing") == [] and without("nothing") == "nothing"


def test_a_bracket_in_a_string_ends_nothing():
    hidden = written("say", {"text": "} </tool_call> <tool_call>{}"})
    (call,) = calls(hidden)
    assert call.arguments["text"] == "} </tool_call> <tool_call>{}" and without(hidden) == ""


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{</tool_call>",
        "<tool_call>{} x</tool_call>",
        '<tool_call>{"name": "a"}',
        '<tool_call>{"name": 3}</tool_call>',
        '<tool_call>{"name": "a", "arguments": [1]}</tool_call>',
        '<tool_call>{"name": "a", "arguments": "x"}</tool_call>',
        "<tool_call>" + "[" * 100_000,
    ],
)
def test_what_is_no_call_says_so_and_the_next_one_is_read(text):
    assert [call.wrong for call in calls(text)] == [FORM]
    if text.endswith("</tool_call>"):
        assert [call.name for call in calls(text + written("b", {}))] == ["", "b"]


@dataclass(frozen=True, kw_only=True)
class Counted(AbstractEnvironmentSpec):
    """Asks for numbers by messages, or by text; ends at "stop"."""

    chats: bool = True

    def open(self):
        return Counting(self.chats)


class Counting(AbstractEnvironment):
    def __init__(self, chats):
        self.chats, self.heard = chats, []

    def reset(self, task, seed):
        self.heard = []
        return [{"role": "user", "content": "Count."}] if self.chats else "Count."

    def step(self, action):
        self.heard.append(action)
        if action == "stop":
            return Moment(reward=float(len(self.heard)), terminated=True)
        said = f"<tool_call>{json.dumps(self.heard)}</tool_call>"  # no call of the policy's
        return Moment(observation=[answer("count", said)] if self.chats else said, reward=0.25)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return CausalLM(model=str(hermes.saved(tmp_path_factory.mktemp("chat")))).load()


TASK = Task(id="t", columns={"messages": [{"role": "system", "content": "Be brief."}]})


def played(policy, turns, task=TASK, chats=True, answers=5):
    live = Driven(
        engine=hermes.Solver(solution=lambda task: turns), workflow=Dialogue(tool=Counted(chats=chats), answers=answers)
    )
    live = live.start(policy)
    live.submit(Request(group=0, task=task, sample=0, sampling=Sampling(max_length=4000), seed=1))
    return drained(live)[0, 0].outcome.last


@pytest.mark.parametrize("chats", [True, False])
def test_an_environment_of_a_chat_hears_turn_by_turn(policy, chats):
    row = played(policy, ["one", "two", "stop"], chats=chats)
    ids = row.decisions.ids_NL[0, : int(row.decisions.length_N[0])].tolist()
    heard = [f"<tool_call>{json.dumps(said)}</tool_call>" for said in (["one"], ["one", "two"])]
    if chats:
        answers = [f"<|im_start|>user\n<tool_response>\n{said}\n</tool_response><|im_end|>\n" for said in heard]
    else:
        answers = [f"<|im_start|>user\n{said}<|im_end|>\n" for said in heard]
    turns = [f"<|im_start|>assistant\n{said}<|im_end|>" for said in ("one", "two", "stop")]
    begin = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nCount.<|im_end|>\n"
    whole = begin + turns[0] + "\n" + answers[0] + turns[1] + "\n" + answers[1] + turns[2]
    assert policy.tokenizer.decode(ids) == whole  # what the template makes of the whole conversation
    assert row.stop == "terminated" and row.reward_S.sum() == 3.5
    paid = row.reward_S.nonzero().flatten().tolist()
    assert len(paid) == 3 and row.mask_S[paid].all() and int(row.turn_S.max()) == 2
    assert (row.mask_S == (row.part_S != Part.OBSERVATION)).all()


def test_after_its_last_answer_it_judges_one_turn_more(policy):
    assert played(policy, ["one", "stop"], answers=1).stop == "terminated"
    cut = played(policy, ["one", "two", "stop"], answers=1)
    assert cut.stop == "truncated" and int(cut.turn_S.max()) == 1 and cut.reward_S.sum() == 0.5
    assert played(policy, ["stop"], answers=0).reward_S.sum() == 1


def test_of_a_text_it_hears_the_same(policy):
    row = played(policy, ["one", "stop"], task=Task(id="p", prompt="Now. "), chats=False)
    assert row.task.prompt == "Now. Count." and row.reward_S.sum() == 2.25 and row.stop == "terminated"
