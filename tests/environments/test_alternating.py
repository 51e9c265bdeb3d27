"""Sets of tasks that take turns."""

import pytest

from gimbal.environments.alternating import Alternating
from gimbal.environments.dataset import Rows


def rows(letter, count):
    return Rows(rows=[{"prompt": f"{letter}{n}"} for n in range(count)])


def prompts(tasks):
    return [tasks[index].prompt for index in range(len(tasks))]


def test_turns_by_hand():
    tasks = Alternating(sets=(rows("a", 5), rows("b", 4)), period=2)
    assert prompts(tasks) == ["a0", "a1", "b0", "b1", "a2", "a3", "b2", "b3"]
    with pytest.raises(IndexError):
        tasks[len(tasks)]


def test_one_set_is_that_set():
    assert prompts(Alternating(sets=(rows("a", 4),), period=2)) == ["a0", "a1", "a2", "a3"]


@pytest.mark.parametrize(("sets", "period"), [((), 2), ((rows("a", 3),), 0), ((rows("a", 3), rows("b", 1)), 2)])
def test_what_cannot_take_turns_is_refused(sets, period):
    with pytest.raises(ValueError, match="Alternating"):
        Alternating(sets=sets, period=period)
