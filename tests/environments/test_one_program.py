"""A program is run, and how far it came is told in stages: with the solutions of the shipped tasks, and with broken ones."""

import pytest

from gimbal.environments.chores import Chores
from gimbal.environments.one_program import OneProgram
from gimbal.environments.terminal import Terminal

pytest.importorskip("pydantic_monty")
TASKS = Chores(split="held_out")
ALONE = {
    task.source: task for task in (TASKS[index] for index in range(len(TASKS))) if len(task.columns["programs"]) == 1
}


def tried(task, *texts):
    live = OneProgram().open()
    moments = []
    for text in texts:
        live.reset(task, 0)
        moments.append(live.step(text))
    live.close()
    return moments


@pytest.mark.parametrize("kind", ALONE)
def test_each_stage_of_a_shipped_task(kind):
    task = ALONE[kind]
    (program,) = task.columns["programs"]
    fenced = f"Like this:\n```python\n{program}\n```\nIt is done."
    right, plain, fails, wrong, nothing = tried(
        task, fenced, "$" + program, "```\n1/0\n```", "$print('?')", "I cannot."
    )
    assert [one.reward for one in (right, plain, fails, wrong, nothing)] == [1, 1, 1 / 3, 2 / 3, 0]
    assert all(one.terminated for one in (right, plain, fails, wrong, nothing))
    assert "ZeroDivisionError" in fails.observation and wrong.observation == "?"
    assert nothing.observation == "there is no program in it" and (nothing.calls, fails.errors, right.calls) == (
        0,
        1,
        1,
    )


def test_each_attempt_has_a_sandbox_of_its_own():
    task = ALONE["sorted_lines"]
    (program,) = task.columns["programs"]
    spoils = "$with open('list.txt', 'w') as f:\n    f.write('b\\na\\n')\n"
    first, second, third = tried(task, spoils, "$print(x)", "$" + program)
    assert (first.reward, second.reward, third.reward) == (2 / 3, 1 / 3, 1)


def test_an_answer_without_a_program_is_checked_as_one():
    task = ALONE["table_sum"]
    right, wrong = tried(task, f"<answer>{task.answer}</answer>", "<answer>-1</answer>")
    assert (right.reward, wrong.reward) == (1, 0)


def test_a_chat_is_told_in_text_and_a_lost_sandbox_is_the_sandboxes_fault():
    assert isinstance(tried(ALONE["table_sum"], "$print(1)")[0].observation, str)
    assert OneProgram().fault == "sandbox" and OneProgram().terminal == Terminal()
