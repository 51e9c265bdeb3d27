"""A split by a number: its two ends, the random control, and ratings by a judge."""

from collections import Counter

import pytest

from gimbal.environments.jsonl import Jsonl, Rows
from gimbal.environments.within import Within
from gimbal.recipes.papers.data.dereason import dereason
from gimbal.recipes.papers.data.dereason_sft import ALL, dereason_sft
from gimbal.rewards.judge import JudgeScore
from gimbal.rewards.rating import rate

pytestmark = pytest.mark.filterwarnings("ignore:.*gave no verdict")
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
    with pytest.raises(ValueError, match="nowhere"):
        Within(tasks=TASKS, above=2.0, upto=2.0)
    with pytest.raises(ValueError, match=r"no column 'deep\.est'"):
        len(Within(tasks=TASKS, column="deep.est"))


@pytest.mark.slow
def test_the_stages_of_the_recipe_share_no_task():
    easy, hard = dereason_sft().tasks, dereason().tasks
    assert len(easy) + len(hard) == len(ALL) and {easy[0].id, easy[1].id}.isdisjoint({hard[0].id, hard[1].id})
    assert easy[0].columns["metadata"]["num_terms"] <= 4 < hard[0].columns["metadata"]["num_terms"]


def test_a_judge_rates_tasks_for_the_split(tmp_path):
    said = {"q0": "Score: 4", "q1": 2.5, "q2": "?", "q3": "Score: 9", "q4": None}
    judge = JudgeScore(judge=lambda question: said.get(question, "Score: 1"), template="{prompt}", low=1.0, high=5.0)
    counts = rate((TASKS[i] for i in range(len(TASKS))), tmp_path / "rated.jsonl", judge, column="rating")
    assert counts == Counter(rated=5, judge_unparsable=1, judge_off_scale=1, unscored=1)
    rated = Jsonl(path=str(tmp_path / "rated.jsonl"))
    assert [rated[i].columns["rating"] for i in range(5)] == [4, 2.5, 1, 1, 1]
    assert prompts(Within(tasks=rated, column="rating", above=2.0)) == ["q0", "q1"] and rated[0].id == TASKS[0].id


def test_chat_prompts_are_written_as_they_came(tmp_path):
    messages = [{"role": "user", "content": "2+2?"}]
    judge = JudgeScore(judge=lambda question: 3, template="{prompt}")
    rate([Rows(rows=[{"prompt": messages}])[0]], tmp_path / "rated.jsonl", judge)
    assert Jsonl(path=str(tmp_path / "rated.jsonl"))[0].columns["messages"] == messages
