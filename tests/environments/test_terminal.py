"""A terminal: what is called and what is answered, what is checked and cannot be forged, what breaks, and that it comes back."""

import json
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from spoken import driven

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.base import Failure
from gimbal.environments.terminal import MOST_CALLS, NOTHING, Terminal
from gimbal.policies.loading import AGENT
from gimbal.policies.token import CausalLM
from gimbal.records import Part, Task
from gimbal.runtime.compose import check
from gimbal.sandbox.base import AbstractSandboxSpec
from gimbal.sandbox.live import Lost, Untrusted
from gimbal.sandbox.monty import Interpreted, Monty
from gimbal.sandbox.processes import Bubblewrap, Landlock
from gimbal.workflows import acting
from gimbal.workflows.runner import Driven

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
SOLVE = {"file": "solve.py", "calls": "[f(x) for x in [1, 2, 3]]", "holds": "[1, 4, 9]"}
RUNGS = [
    Monty(),
    pytest.param(Landlock(), marks=pytest.mark.slow),
    pytest.param(
        Bubblewrap(), marks=[pytest.mark.slow, pytest.mark.skipif(not shutil.which("bwrap"), reason="no bwrap")]
    ),
]


def begun(terminal=Terminal(), task=None, **columns):
    live = terminal.open()
    live.reset(task or Task(id="t", answer="42", columns={"files": {"a": "4 2"}, **columns}), 0)
    return live


def call(name, **arguments):
    return "<tool_call>" + json.dumps({"name": name, "arguments": arguments}) + "</tool_call>"


def said(live, turn):
    moment = live.step(turn)
    return moment.observation, moment.calls, moment.errors


@pytest.mark.parametrize("sandbox", RUNGS, ids=lambda rung: type(rung).__name__)
def test_programs_and_files_last_over_the_episode(sandbox):
    live = begun(Terminal(sandbox=sandbox))
    assert said(live, "$print(open('a').read())") == ("\n4 2\n", 1, 0)
    assert said(live, call("python", code="open('b', 'w').write('x' * 3)")) == (f"\n{NOTHING}\n", 1, 0)
    other = live.fork()
    assert said(other, "$open('b', 'a').write('y')")[1:] == (1, 0)
    assert said(other, "$print(open('b').read())")[0] == "\nxxxy\n"
    assert said(live, "$print(open('b').read())")[0] == "\nxxx\n"
    text, calls, failed = said(live, "$print(1 / 0)")
    assert (calls, failed) == (1, 1) and text.endswith("ZeroDivisionError: division by zero\n")
    ended = live.step("so it is <answer> 42 </answer>")
    assert (ended.reward, ended.terminated, ended.calls) == (1.0, True, 0)
    assert other.step("41").reward == 0.0
    live.close()
    other.close()


def test_several_calls_in_a_turn_are_answered_in_order_as_messages_of_a_chat():
    live = begun(**CHAT)
    moment = live.step(call("python", code="print(1)") + "\n" + call("python", code="print(x)"))
    first, second = moment.observation
    assert first == {"role": "tool", "name": "python", "content": "1"} and (moment.calls, moment.errors) == (2, 1)
    assert second["content"].endswith("NameError: name 'x' is not defined")


@pytest.mark.parametrize(
    "turn, sentence",
    [
        ("<tool_call>print(1)</tool_call>", "error: a call is <tool_call>"),
        (call("pythn", code="1"), "error: there is no tool pythn, did you mean python?; there are python"),
        (call("python", cod="1"), "error: python has no argument cod, did you mean code?"),
        (call("python"), "error: python needs the argument code"),
        (call("shell", command="ls"), "error: there is no tool shell; there are python"),
    ],
)
def test_a_call_that_cannot_be_is_the_policys_own(turn, sentence):
    text, calls, failed = said(begun(), turn)
    assert sentence in text.replace("; did", ", did") and (calls, failed) == (1, 1)


@pytest.mark.slow
def test_half_a_character_in_a_call_voids_nothing():
    live = begun()
    text, calls, failed = said(live, '<tool_call>{"name": "\\ud800", "arguments": {}}</tool_call>')
    assert (calls, failed) == (1, 1) and "there is no tool ?" in text and text.isascii()
    text, *_ = said(live, '<tool_call>{"name": "python", "arguments": {"\\ud800": ""}}</tool_call>')
    assert "no argument ?" in text and text.isascii()


def test_a_turn_has_so_many_calls_and_no_more():
    live = begun()
    text, calls, failed = said(live, call("python", code="print(7)") * (MOST_CALLS + 2))
    assert (calls, failed) == (MOST_CALLS + 2, 2) and text.count("7") == MOST_CALLS and text.count("was not run") == 2


def test_where_the_sandbox_runs_commands_there_is_a_shell():
    terminal = Terminal(sandbox=Landlock())
    assert [each["function"]["name"] for each in terminal.schemas] == ["python", "shell"]
    live = begun(terminal)
    assert said(live, call("shell", command="wc -w a")) == ("\n2 a\n", 1, 0)
    assert said(live, call("shell", command="exit 3"))[1:] == (1, 1)
    live.close()


def test_what_is_said_is_cut_at_its_front():
    live = begun(Terminal(most=12))
    assert said(live, "$print('0123456789' * 5)")[0] == "\n...123456789\n"
    assert said(live, "$print(1 / 0)")[0] == "\n...n by zero\n"
    with pytest.raises(ValueError, match="most is 3; it must be at least 8"):
        Terminal(most=3)


def test_a_program_at_its_limit_is_told_so_and_goes_on():
    live = begun(Terminal(sandbox=Monty(timeout=0.2)))
    text, calls, failed = said(live, "$while True: pass")
    assert text == "\nerror: the program did not return within 0.2 seconds and was ended\n" and (calls, failed) == (
        1,
        1,
    )
    assert said(live, "$print(1)")[0] == "\n1\n"
    checked = begun(Terminal(sandbox=Monty(timeout=0.2)), check=SOLVE)
    checked.step("$open('solve.py', 'w').write('while True: pass')")
    assert checked.step("done").reward == 0.0


@dataclass(frozen=True, kw_only=True)
class Gone(AbstractSandboxSpec):
    """It is lost after so many programs."""

    after: int = 0

    def start(self):
        return Going(self)

    def attack(self):
        return ()


class Going(Interpreted):
    def __init__(self, spec):
        super().__init__(Monty(), Monty().start().state)
        self.left = spec.after

    def exec(self, program, **options):
        self.left -= 1
        if self.left < 0:
            raise Lost("was lost: it ended; its files are gone: open another")
        return super().exec(program, **options)


def test_a_lost_sandbox_is_no_answer_and_no_reward():
    live = begun(Terminal(sandbox=Gone(after=1)))
    assert said(live, "$print(1)")[0] == "\n1\n"
    with pytest.raises(Failure, match="Gone was lost") as caught:
        live.step("$print(1)")
    assert caught.value.fault == "sandbox" and Terminal().fault == "sandbox"


def test_its_episode_leaves_the_statistics_as_a_sandbox_error(agent):
    task = Task(id="t", columns=CHAT)
    episode, _ = driven(agent, task, Terminal(sandbox=Gone(after=1)), "$print(1)<eos>", "$print(2)<eos>")
    assert (episode.fault, episode.stop) == ("sandbox", "error") and "Gone was lost" in episode.error


@dataclass(frozen=True, kw_only=True)
class Leaky(AbstractSandboxSpec):
    """It does not hold."""

    def start(self):
        return Going(Gone())

    def attack(self):
        raise Untrusted("Leaky does not hold on this machine")


def test_a_sandbox_that_does_not_hold_ends_the_run_and_is_no_failure_of_a_rollout(agent):
    with pytest.raises(Untrusted):
        begun(Terminal(sandbox=Leaky())).step("$print(1)")
    with pytest.raises(Untrusted):  # before anything is drawn
        driven(agent, Task(id="t", columns=CHAT), Terminal(sandbox=Leaky()), "$print(1)<eos>")


# What a policy might write into solve.py to be taken for a function that squares.
FORGERIES = {
    "says so itself": "print('[1, 4, 8]')\nraise SystemExit",
    "says so and fails": "print('[1, 4, 9]')\nraise ValueError",
    "prints something else": "def f(x):\n    return x\n_p = print\ndef print(*a): _p('[1, 2, 2]')",
    "another repr": "def f(x):\n    return x\ndef repr(x):\n    return '[1, 4, 8]'",
    "reads what is expected": "def f(x):\n    return open('check').read()",
}


@pytest.mark.parametrize("sandbox", RUNGS, ids=lambda rung: type(rung).__name__)
def test_the_check_cannot_be_forged(sandbox):
    """What is expected never enters a sandbox, and neither names nor other files of the session enter the one that tries the function.

    Whoever makes it print the right values has computed them.
    """
    live = begun(Terminal(sandbox=sandbox), check=SOLVE, files={})
    live.step("$open('json.py', 'w').write('x')\nprint = None")
    for name, source in FORGERIES.items():
        other = live.fork()
        other.step(call("python", code=f"open('solve.py', 'w').write({source!r})"))
        assert other.step("<answer>[1, 4, 9]</answer>").reward == 0.0, name
        other.close()
    live.step(call("python", code="open('solve.py', 'w').write('def f(x):\\n    return x * x')"))
    assert live.step("done").reward == 1.0
    live.close()


def test_a_file_is_compared_and_no_file_is_no_error():
    check = {"file": "b", "holds": "1\n2\n"}
    assert begun(check=check).step("done").reward == 0.0
    live = begun(check=check)
    live.step("$open('b', 'w').write('1\\n2')")
    assert live.step("<answer></answer>").reward == 1.0


@pytest.fixture(scope="module")
def agent():
    return CausalLM(model=AGENT).load()


def test_what_a_program_prints_is_not_taken_for_a_call(agent):
    """An environment without triggers reads the newest turn alone."""
    printed = "<tool_call>1</tool_call>$"
    task = Task(id="t", answer="no", columns=CHAT)
    turns = (f"$print('{printed}')<eos>", f"$print('{printed}')<eos>", "<answer>no</answer><eos>")
    episode, prompt = driven(agent, task, Terminal(), *turns)
    assert prompt == "python\nhi\n" and episode.earned == 1.0 and episode.stop == "terminated"
    assert [step[:3] for step in episode.acts] == [(0, 1, 0), (1, 1, 0), (2, 0, 0)]
    assert all(seconds > 0 for *_, seconds in episode.acts)
    row = episode.last
    assert row.text.count(printed) == 4
    ids = row.decisions.ids_NL[0, int(row.decisions.prompt_N[0]) :]
    told = agent.tokenizer.decode(ids[row.part_S == Part.OBSERVATION])
    assert told == f"{printed}<eos>" * 2 and (row.mask_S == (row.part_S == Part.RESPONSE)).all()
    assert row.reward_S[-1] == 1.0 and row.reward_S.sum() == 1.0


def test_half_finished_episodes_go_on_to_the_same_bytes_and_leave_nothing_open(agent, monkeypatch):
    """Their sandboxes are brought back by what was run in them."""
    run, opened = recipes.function("terminal")(), []
    start = Monty.start
    monkeypatch.setattr(Monty, "start", lambda spec: opened.append(start(spec)) or opened[-1])

    def engine():
        live = Driven(engine=Native(slots=8, precision="float32"), workflow=run.workflow).start(agent)
        live.load(0, agent.state_dict())
        return live

    live = engine()
    for index in range(8):
        live.submit(Request(group=index, task=run.tasks[index], sample=0, sampling=run.sampling, seed=5))
    while not any(len(seat.history) > 1 and seat.done > 1 for flow in live.flows for seat in flow.seats.values()):
        assert live.step() == []
    fresh = engine()
    fresh.load_state_dict(live.state_dict())
    mine, theirs = ({key: item.outcome for key, item in drained(e).items()} for e in (live, fresh))
    assert len(mine) == 8 and mine.keys() == theirs.keys()
    for key, episode in mine.items():
        assert episode.text == theirs[key].text and episode.earned == theirs[key].earned
        assert [step[:3] for step in episode.acts] == [step[:3] for step in theirs[key].acts]
    assert any(step[1] for episode in mine.values() for step in episode.acts) and opened
    for sandbox in opened:
        for _ in range(200):
            if sandbox.closed:
                break
            time.sleep(0.01)
        assert sandbox.closed


def test_a_rung_that_is_not_here_is_refused_before_the_run():
    run = recipes.function("terminal")()
    with pytest.raises(ValueError, match=r"Bubblewrap needs the program nowhere-bwrap, which is not installed"):
        check(replace(run, workflow=replace(run.workflow, tool=Terminal(sandbox=Bubblewrap(program="nowhere-bwrap")))))


def test_a_run_says_once_what_its_sandbox_held_off(capsys):
    acting._said.cache_clear()
    for _ in range(2):
        acting.attack_sandboxes(recipes.function("terminal")().workflow)
    assert capsys.readouterr().err.count("gimbal: Monty held off 10 attacks on itself: reading a file, ") == 1
