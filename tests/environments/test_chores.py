"""Tasks that are run before they are tasks: what the gate keeps out, what is shipped, and the traces of the agent."""

import json
from collections import Counter
from dataclasses import replace
from random import Random

import pytest

from gimbal.config import Text
from gimbal.config.parts import read
from gimbal.environments.base import AbstractTasks, question
from gimbal.environments.chore_kinds import FOLLOWED, KINDS, Draft
from gimbal.environments.chore_traces import Styles, Traces, trace
from gimbal.environments.chores import SHIPPED, Chores, gate, synthesised
from gimbal.environments.terminal import Terminal
from gimbal.records import Task
from gimbal.sandbox.monty import Monty

SORTED = Draft(
    kind="sorted",
    prompt="Sort a.",
    files={"a": "2\n1\n"},
    programs=("x = sorted(open('a').read().split())\nopen('a', 'w').write('\\n'.join(x))",),
    check={"file": "a", "holds": "1\n2\n"},
)
WRITTEN = "open('solve.py', 'w').write('def f(x):\\n    return x + 1')"
ASKED = Draft(kind="asked", prompt="What is in a?", files={"a": "7"}, programs=("print(open('a').read())",), answer="7")
CALLED = {"file": "solve.py", "calls": "f(1)"}
DEFECTS = {
    "reference_fails": [
        replace(SORTED, programs=("1 / 0",)),
        replace(SORTED, check={"file": "b", "holds": "1\n2\n"}),
        replace(ASKED, answer="8"),
        replace(ASKED, programs=("print(open('a').read())", "1 / 0")),
        replace(SORTED, programs=("pass",), check={"file": "solve.py", "calls": "f(1)"}),
        replace(SORTED, programs=(WRITTEN,), check={"file": "solve.py", "calls": "g(1)"}),
    ],
    "null_passes": [
        replace(SORTED, files={"a": "1\n2\n"}),
        replace(ASKED, prompt="7 or 8?"),
        replace(SORTED, files={"solve.py": "def f(x): return 2"}, programs=(WRITTEN,), check=CALLED),
    ],
    "unrepeatable": [replace(ASKED, programs=("print([7])", "import random\nprint(random.random())", "print(7)"))],
}  # fmt: skip


@pytest.mark.parametrize("reason", DEFECTS)
def test_the_gate_keeps_out(reason):
    sandbox = Monty() if reason != "unrepeatable" else Drifting()
    for draft in DEFECTS[reason]:
        assert gate(draft, sandbox)[1] == reason, draft


class Drifting(Monty.__mro__[1]):
    """Its random numbers begin elsewhere in each sandbox, as a machine's do."""

    commands, count = False, [0]

    def start(self):
        self.count[0] += 1
        return Monty(seed=self.count[0]).start()

    def open(self):
        return self.start()


def test_the_gate_lets_tasks_through_and_finds_out_what_is_expected():
    assert gate(SORTED, Monty()) == (SORTED, "") and gate(ASKED, Monty()) == (ASKED, "")
    draft, wrong = gate(
        replace(SORTED, programs=(WRITTEN,), check={"file": "solve.py", "calls": "[f(1), f(2)]"}), Monty()
    )
    assert wrong == "" and draft.check["holds"] == "[2, 3]"


def test_a_kind_that_repeats_itself_or_never_passes_ends_in_a_sentence():
    rows, told = synthesised(
        {"asked": lambda rng: replace(ASKED, files={"a": "7", "b": str(rng.randint(1, 3))})}, 3, Monty()
    )
    assert len(rows) == 3 and told["kept"] == 3 and told["duplicate"] > 0
    with pytest.raises(ValueError, match="drafts of asked 1 were kept; dropped were"):
        synthesised({"asked": lambda rng: ASKED}, 2, Monty())


def test_what_is_shipped_is_what_the_seed_makes():
    shipped = [json.loads(line) for line in SHIPPED.read_text().splitlines()]
    made, _ = synthesised(KINDS, 6, Monty())
    first = [row for row in shipped if int(row["id"].rpartition(":")[2]) < 6]
    assert made == first and Counter(row["kind"] for row in made) == dict.fromkeys(KINDS, 6)


def test_no_question_of_the_held_out_ones_is_trained_on():
    train, held_out = Chores(), Chores(split="held_out")
    assert (len(train), len(held_out)) == (600, 200)
    assert {asked(task) for task in train}.isdisjoint({asked(task) for task in held_out})
    only = Chores(kinds=("chain", "fix_bug"))
    assert {only[index].source for index in range(len(only))} == {"chain", "fix_bug"}
    with pytest.raises(ValueError, match="no kind 'chian'; did you mean chain"):
        Chores(kinds=("chian",))
    with pytest.raises(ValueError, match="split"):
        read(Text("Chores(split='test')"), AbstractTasks, "tasks")
    with pytest.raises(IndexError, match="task 600 of 600"):
        train[600]


def asked(task):
    return task.asked, json.dumps(task.columns["files"], sort_keys=True)


@pytest.mark.parametrize("style", vars(Styles()))
@pytest.mark.parametrize("kind", FOLLOWED)
def test_a_trace_says_what_the_terminal_says(kind, style):
    """What was learned from written traces is then met at play, to the letter; only careful ones earn something, but for luck."""
    terminal = Terminal(most=24)
    earned = []
    for number in range(5):
        draft = KINDS[kind](Random(number))
        turns = trace(draft, style, terminal.most, Random(number))
        live = terminal.open()
        live.reset(
            Task(
                id="t",
                answer=draft.answer,
                columns={"files": draft.files, "messages": [{"role": "user", "content": "x"}]},
            ),
            0,
        )
        moments = [live.step(turn) for turn, _ in turns]
        assert [moment.observation[0]["content"] for moment in moments[:-1]] == [told for _, told in turns[:-1]]
        earned.append(moments[-1].reward)
    assert (sum(earned) == 5) if style == "careful" else (sum(earned) <= 1)


def test_the_styles_begin_as_often_as_they_say():
    first = [
        task.columns["style"]
        for task in map(Traces(size=4000).__getitem__, range(4000))
        if len(task.columns["messages"]) == 1
    ]
    for style, share in vars(Styles()).items():
        assert abs(first.count(style) / len(first) - share) < 0.03
    with pytest.raises(ValueError, match="must be at least 0 and sum to 1"):
        Styles(careful=0.5)


def test_questions_of_one_set_are_told_apart():
    tasks = Chores(kinds=("chain",))
    assert len({question(tasks[index]) for index in range(len(tasks))}) > 1


def test_the_same_words_about_other_files_are_another_question():
    def row(text):
        return Task(id="a", prompt="How many words are in a.txt?", answer="1", columns={"files": {"a.txt": text}})

    assert question(row("one")) == question(row("one")) != question(row("two"))
