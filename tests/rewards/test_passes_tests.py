"""Programs against the tests of their task: in a sandbox, whole or as edits."""

import pytest

from gimbal.records import Task
from gimbal.rewards.passes_tests import PassesTests
from gimbal.sandbox.live import Lost
from gimbal.sandbox.monty import Interpreted, Monty
from gimbal.sandbox.processes import Landlock

TESTS = "assert f(2) == 4\nassert f(3) == 6\n"
RIGHT, WRONG = "def f(x):\n return x+x\n", "def f(x):\n return x*x\n"


def scores(group_of, *texts, **fields):
    return PassesTests(**fields)(group_of(*texts, columns={"tests": TESTS}))


def test_a_program_passes_if_its_tests_do(group_of):
    assert scores(group_of, RIGHT, WRONG, "def f(x", "", "f = 1", RIGHT) == [1, 0, 0, 0, 0, 1]


def test_one_that_does_not_end_fails_and_harms_no_other(group_of):
    assert scores(group_of, "while 1: pass", RIGHT, "x = 'a' * 10**9") == [0, 1, 0]


@pytest.mark.parametrize("way", ["raise SystemExit(0)", "import os\nos._exit(0)", "import sys\nsys.exit()", "return"])
@pytest.mark.parametrize("sandbox", [Monty(), Landlock()])
def test_one_that_ends_before_its_tests_has_not_passed_them(group_of, sandbox, way):
    assert scores(group_of, RIGHT, f"print(1)\n{way}\n", sandbox=sandbox) == [1, 0]


def test_programs_share_no_names(group_of):
    assert scores(group_of, RIGHT, "g = f") == [1, 0]


def test_a_program_within_marks(group_of):
    marked = f"So:\n```python\n{RIGHT}```\n"
    assert scores(group_of, marked, RIGHT, opening="```python\n", closing="```") == [1, 0]


def test_edits_are_what_they_lead_to(group_of):
    edits = "@1\n+def f(x):\n+ return y\n\n@2\n+ y=x+x\n"
    assert scores(group_of, edits, RIGHT, "@3\n+a", edits=True) == [1, 0, 0]
    assert scores(group_of, edits) == [0]


@pytest.mark.parametrize("alone", [RIGHT, WRONG])
def test_where_the_sandbox_is_lost_there_is_no_score(group_of, monkeypatch, alone):
    run = Interpreted.exec

    def lost(sandbox, program, **options):
        if program.startswith("lose"):
            raise Lost("its interpreter ended")
        return run(sandbox, program, **options)

    monkeypatch.setattr(Interpreted, "exec", lost)
    assert scores(group_of, alone, "lose", alone) == [float(alone == RIGHT), None, float(alone == RIGHT)]


def test_a_task_without_tests_is_refused():
    with pytest.raises(ValueError, match=r"PassesTests runs the column tests, a Python program, and task t has none"):
        PassesTests().accepts(Task(id="t", prompt="p"))
