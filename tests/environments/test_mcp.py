"""Tools of a real MCP server, started as a program: state of an episode's own, errors that are the policy's, and a server that dies."""

import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="mcp is not here: make test-environments installs it")
sys.path.insert(0, str(Path(__file__).parent))
import hermes

from gimbal.engines.base import Request, drained
from gimbal.environments.base import Failure
from gimbal.environments.calls import written
from gimbal.environments.mcp import Mcp, _one
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven

pytestmark = pytest.mark.slow  # a server takes a second to begin
FILE = str(Path(__file__).parent / "own_server.py")
SERVER = Mcp(command=sys.executable, arguments=(FILE,))
CHAT = Task(id="c", columns={"messages": [{"role": "user", "content": "Keep it."}]})


@pytest.fixture
def live():
    made = SERVER.open()
    yield made
    made.close()


def said(moment):
    return moment.observation[0]["content"]


def test_what_it_offers_and_keeps(live):
    assert [one["function"]["name"] for one in SERVER.schemas] == ["note", "recall", "die"]
    note = SERVER.schemas[0]["function"]
    assert note["description"].startswith("Keep a text") and note["parameters"]["required"] == ["name"]
    live.reset(CHAT, 0)
    assert said(live.step("Well. " + written("note", {"name": "a", "text": "x"}))) == "1 notes"
    assert said(live.step(written("recall", {"name": "a"}))) == "x"
    assert live.step("nothing was called").observation is None
    other = SERVER.open()
    other.reset(Task(id="text"), 0)
    assert other.step(written("recall", {"name": "a"})).observation.startswith(
        "\n<tool_response>\nerror: "
    )  # its own server
    other.close()
    live.reset(CHAT, 0)
    assert said(live.step(written("recall", {"name": "a"}))).startswith("error: ")  # begun anew


def test_calls_that_cannot_be_are_told(live):
    live.reset(CHAT, 0)
    for call, sentence in (
        (written("nota", {}), "there is no tool nota; did you mean note?"),
        (written("note", {}), "required"),
        ("<tool_call>{</tool_call>", "a call is <tool_call>"),
        (written("recall", {"name": "b"}), "no note b"),
    ):
        assert said(live.step(call)).startswith("error: ") and sentence.lower() in said(live.step(call)).lower()


def test_a_server_that_dies_is_a_failure_of_the_tool(live):
    live.reset(CHAT, 0)
    with pytest.raises(Failure, match=r"own_server\.py does not answer: Connection closed") as raised:
        live.step(written("die", {}))
    assert raised.value.fault == "tool"
    live.reset(CHAT, 0)
    assert said(live.step(written("note", {"name": "a"}))) == "1 notes"


def test_a_program_that_is_none_is_named():
    with pytest.raises(Failure, match="the MCP server /nowhere x does not begin: FileNotFoundError"):
        Mcp(command="/nowhere", arguments=("x",)).open().reset(CHAT, 0)
    with pytest.raises(Failure, match="does not begin"):
        Mcp(command=sys.executable, arguments=("-c", "raise SystemExit(1)")).open().reset(CHAT, 0)


def test_a_shared_one_is_asked_from_several_threads():
    shared = Mcp(command=sys.executable, arguments=(FILE,), shared=True)
    heard = []

    def ask(name):
        one = shared.open()
        one.reset(CHAT, 0)
        one.step(written("note", {"name": name, "text": name}))
        heard.append((name, said(one.step(written("recall", {"name": name})))))
        one.close()

    threads = [threading.Thread(target=ask, args=(name,)) for name in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(heard) == [(name, name) for name in "abcdef"]
    assert shared.schemas == SERVER.schemas and _one(shared.command, shared.arguments) is _one(
        SERVER.command, SERVER.arguments
    )


def test_a_dialogue_offers_and_answers(tmp_path):
    policy = CausalLM(model=str(hermes.saved(tmp_path))).load()
    turns = [written("note", {"name": "a", "text": "42"}), written("recall", {"name": "a"}), "It is 42."]
    live = Driven(engine=hermes.Solver(solution=lambda task: turns), workflow=Dialogue(tool=SERVER)).start(policy)
    live.submit(Request(group=0, task=CHAT, sample=0, sampling=Sampling(max_length=3000), seed=1))
    row = drained(live)[0, 0].outcome.last
    whole = policy.tokenizer.decode(row.decisions.ids_NL[0].tolist())
    assert '"name": "recall"' in whole.partition("Keep it.")[0]  # the schemas
    assert "<tool_response>\n1 notes\n</tool_response>" in whole and "<tool_response>\n42\n</tool_response>" in whole
