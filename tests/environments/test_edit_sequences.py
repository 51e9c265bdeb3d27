"""Programs as edits: they lead to the program, and no state on the way has an error that the program has not."""

import ast
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from gimbal.environments.dataset import Rows
from gimbal.environments.edit_sequences import EditSequences, insertions, python_errors
from gimbal.environments.string_programs import StringPrograms
from gimbal.ops.edits import applied, written

PROGRAM = """import math

TWO = 2


def area(r):
    # of a circle
    if r < 0:
        raise ValueError(r)
    else:
        side = r * r
    return math.pi * side


class Disc:
    def size(self, r=TWO):
        for n in range(3):
            r += n
        return area(r)


print(Disc().size())
"""
LINES = PROGRAM.splitlines()


def text_of(lines, state):
    return "".join(f"{lines[line]}\n" for line in sorted(state))


@pytest.mark.parametrize("linter", [python_errors, None])
@pytest.mark.parametrize("seed", range(20))
def test_edits_lead_to_the_program_and_only_insert(linter, seed):
    states = insertions(LINES, linter, Random(seed))
    assert states[-1] == frozenset(range(len(LINES)))
    assert all(before < after for before, after in pairwise(states))
    edits = written(LINES, states)
    assert applied(edits) == PROGRAM
    reached = [applied("\n".join(edits.split("\n\n")[: n + 1])) for n in range(len(states))]
    assert reached == [text_of(LINES, state) for state in states]


def test_every_state_is_clean_with_the_linter_and_not_without():
    def broken(linter):
        states = [state for seed in range(50) for state in insertions(LINES, linter, Random(seed))]
        return sum(bool(python_errors(text_of(LINES, state))) for state in states)

    assert broken(python_errors) == 0 < broken(None)
    for state in insertions(LINES, python_errors, Random(1)):
        ast.parse(text_of(LINES, state))


def test_an_error_of_the_whole_program_is_no_reason_to_delete():
    lines = ["x = unknown", "y = 1", "z = y"]
    states = [frozenset(state) for seed in range(40) for state in insertions(lines, python_errors, Random(seed))]
    assert frozenset({0}) in states  # alone, and as wrong as ever
    assert frozenset({2}) not in states and frozenset({0, 2}) not in states  # z needs y


def test_what_is_indented_goes_with_its_line():
    lines = ["if a:", "  b", "", "  c", "d"]
    for seed in range(30):
        for state in insertions(lines, None, Random(seed)):
            assert 0 in state or not {1, 3} & state


def test_a_line_is_drawn_evenly():
    """Of three independent lines each is the first to go in a third of the cases."""
    firsts = [insertions(["a=1", "b=2", "c=3"], python_errors, Random(seed))[-2] for seed in range(3000)]
    for line in range(3):
        share = sum(state == {0, 1, 2} - {line} for state in firsts) / len(firsts)
        assert share == pytest.approx(1 / 3, abs=0.04)


def test_one_line_is_one_edit_and_so_is_a_program_that_nothing_can_leave():
    assert written(["x=1"], insertions(["x=1"], python_errors, Random(0))) == "@1\n+x=1\n"

    def whole_or_nothing(program):
        count = len(program.splitlines())
        return set() if count == len(LINES) else range(1, count + 1)

    assert insertions(LINES, whole_or_nothing, Random(3)) == [frozenset(range(len(LINES)))]
    assert insertions([], python_errors, Random(0)) == insertions(["", " "], python_errors, Random(0)) == []


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        ("x=1\nprint(x)", set()),
        ("print(x)", {1}),
        ("def f(a):\n b=a\n return b+c", {3}),
        ("def f(a):\nx=1", {1}),
        ("x=1\nif x:", {2}),
        ("x=1\nelse:\n y=1", {2}),
        ("x=(1", {1}),
        ("from os import path as p\np.join", set()),
        ("from os import *\njoin", set()),
        ("try:\n f=1\nexcept ValueError as e:\n print(e)", set()),
        ("for i, *j in ():\n i, j, [k for k in j]", set()),
        ("match 1:\n case [x, *y]:\n  x, y\n case {**z}:\n  z", set()),
        ("g=lambda u, *v, **w: (u, v, w)\nif (n:=1): n", set()),
        ("", set()),
    ],
)
def test_errors_that_show_without_running(program, wrong):
    assert python_errors(program) == wrong


@pytest.mark.parametrize(
    ("edits", "program"),
    [
        ("@1\n+b\n\n@1\n+a\n@3\n+c\n+\n", "a\nb\nc\n\n"),
        ("@1\n+@2", "@2\n"),
        ("", None),
        ("+a", None),  # nowhere
        ("@2\n+a", None),  # behind the end
        ("@0\n+a", None),
        ("@1\na", None),
        ("@1\n+a\n\n@99999999\n+b", None),
    ],
)
def test_edits_by_hand(edits, program):
    assert applied(edits) == program


def test_states_that_take_something_away_are_refused():
    with pytest.raises(ValueError, match=r"the lines \[0\], and the one before it \[1\]; edits only insert"):
        written(["a", "b"], [frozenset({1}), frozenset({0})])


def test_each_program_is_written_in_several_orders_and_the_same_again():
    programs = StringPrograms(size=40)
    tasks = EditSequences(tasks=programs, samples=5)
    assert len(tasks) == 200 and tasks[0].columns["tests"] == programs[0].columns["tests"]
    for index in range(200):
        task, own = tasks[index], programs[index % 40]
        assert task.prompt == own.prompt and task.columns["program"] == own.columns["completion"]
        assert applied(task.columns["completion"]) == task.columns["program"]
        assert task == tasks[index]
    assert len({task.id for task in map(tasks.__getitem__, range(200))}) == 200
    assert len({tasks[n * 40].columns["completion"] for n in range(5)}) > 1
    assert [replace(tasks, seed=1)[n] for n in range(40)] != [tasks[n] for n in range(40)]


def test_a_linter_of_ones_own(tmp_path):
    file = tmp_path / "lint.py"
    file.write_text(
        "def lint(program):\n    return [n for n, line in enumerate(program.split('\\n'), 1) if n > 1 and line == 'a']\n"
    )
    tasks = EditSequences(tasks=Rows(rows=[{"prompt": "p", "completion": "b\na"}]), samples=30, linter=f"{file}:lint")
    assert {tasks[n].columns["completion"] for n in range(30)} == {"@1\n+b\n\n@2\n+a\n", "@1\n+a\n\n@1\n+b\n"}


def test_what_cannot_be_written_as_edits_is_refused():
    with pytest.raises(ValueError, match=r"EditSequences\.samples is 0; a program is written 1 or more times"):
        EditSequences(tasks=StringPrograms(), samples=0)
    tasks = EditSequences(tasks=Rows(rows=[{"prompt": "p", "answer": "a"}]))
    with pytest.raises(
        ValueError, match=r"has no program to be written as edits: give a text in its column completion"
    ):
        tasks[0]


def test_functions_of_a_text_do_what_their_tests_ask():
    texts = set()
    for index in range(300):
        task = StringPrograms()[index]
        names = {}
        exec(task.columns["completion"] + task.columns["tests"], names)  # ours
        assert names["f"]("1234") + "\n" == task.prompt
        texts.add(task.prompt)
        assert python_errors(task.columns["completion"]) == set()
    assert len(texts) > 60 and all(len(text) <= 9 for text in texts)


def test_sizes_of_functions_are_checked():
    assert {StringPrograms(least=1, most=2)[n].columns["completion"].count("\n") for n in range(100)} == {3, 4}
    with pytest.raises(ValueError, match=r"StringPrograms has 3 to 2 lines; expected 1 <= least <= most <= 7"):
        StringPrograms(least=3, most=2)


SOUND = [
    "def double(t):\n    # first the double:\n    a = t * 2\n    return a\n",
    'def noted(t):\n    """Gives it back.\n\n    Note:\n    no copy.\n    """\n    a = t\n    return a\n',
    "def table(t):\n    found = {\n        'key':\n        t,\n    }\n    return found\n",
]


@pytest.mark.parametrize("program", SOUND)
def test_a_line_of_a_sound_program_that_ends_in_a_colon_is_no_error(program):
    lines = program.splitlines()
    assert python_errors(program) == set()
    for seed in range(20):
        for state in insertions(lines, python_errors, Random(seed)):
            ast.parse(text_of(lines, state))


@pytest.mark.parametrize("mark", ["\x0c", "\u2028", "\x85", "\x1d"])
def test_a_line_may_hold_other_marks_of_an_end(mark):
    program = f"text = 'a{mark}b'\nprint(text)\n"
    tasks = EditSequences(tasks=Rows(rows=[{"prompt": "p", "completion": program}]), samples=3)
    assert [applied(tasks[n].columns["completion"]) for n in range(3)] == [program] * 3


@pytest.mark.parametrize("number", [0, 99])
def test_a_linter_that_counts_otherwise_is_told(number):
    with pytest.raises(
        ValueError, match=rf"the linter found an error in line {number} of \d+; lines are counted from 1"
    ):
        insertions(LINES, lambda program: {number}, Random(0))
