"""A split by a number: its two ends and the random control."""

import pytest

from gimbal.environments.dataset import Rows
from gimbal.environments.within import Within
from gimbal.recipes.papers.data.dereason import dereason
from gimbal.recipes.papers.data.dereason_sft import ALL, dereason_sft

LEVELS = [3, 1, 5, 2, 4, 1, 3, 5]
TASKS = Rows(rows=[{"prompt": f"q{i}", "difficulty": level, "deep": {"er": level}} for i, level in enumerate(LEVELS)])


def prompts(tasks):
    return [tasks[i].prompt for i in range(len(tasks))]


def test_by_hand():
    assert prompts(Within(tasks=TASKS, upto=2.0)) == ["q1", "q3", "q5"]
    assert prompts(Within(tasks=TASKS, column="deep.er", above=4.0)) == ["q2", "q7"]


def test_reduces_to_imitation_alone_at_5_and_to_reinforcement_alone_at_0():
    everything = prompts(TASKS)
    assert prompts(Within(tasks=TASKS, upto=5.0)) == everything == prompts(Within(tasks=TASKS, above=0.0))
    for empty in (Within(tasks=TASKS, upto=0.0), Within(tasks=TASKS, above=5.0)):
        with pytest.raises(ValueError, match=r"they go from 1\.0 to 5\.0"):
            len(empty)


@pytest.mark.parametrize("shuffled", [None, 0, 7])
def test_two_halves_part_the_set(shuffled):
    easy, hard = (Within(tasks=TASKS, shuffled=shuffled, **side) for side in ({"upto": 3.0}, {"above": 3.0}))
    assert sorted(prompts(easy) + prompts(hard)) == prompts(TASKS) and (len(easy), len(hard)) == (5, 3)


def test_the_random_control_is_another_split():
    assert len({tuple(prompts(Within(tasks=TASKS, upto=3.0, shuffled=seed))) for seed in range(5)}) > 1


def test_refusals():
    with pytest.raises(ValueError, match="selects nothing"):
        Within(tasks=TASKS, above=2.0, upto=2.0)
    with pytest.raises(ValueError, match=r"no column 'deep\.est'"):
        len(Within(tasks=TASKS, column="deep.est"))


@pytest.mark.slow
def test_the_stages_of_the_recipe_share_no_task():
    easy, hard = dereason_sft().tasks, dereason().tasks
    assert len(easy) + len(hard) == len(ALL) and {easy[0].id, easy[1].id}.isdisjoint({hard[0].id, hard[1].id})
    assert easy[0].columns["metadata"]["num_terms"] <= 4 < hard[0].columns["metadata"]["num_terms"]
