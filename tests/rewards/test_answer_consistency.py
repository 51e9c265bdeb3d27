"""The second asking: what is asked, every case of the reward, and the limits."""

from dataclasses import replace

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.multiple_choice import MultipleChoice
from gimbal.rewards.answer_consistency import AnswerConsistency, meaning
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.scoring import answered, follow_ups, score

REWARD = AnswerConsistency(wrong=0.25)
COLUMNS = {"options": ["4", "5", "6"], "stem": "2+2?"}
ANSWERS = ("<think>w</think><answer>4</answer>", "<answer>5</answer>", "nothing", "<think>v</think><answer>A</answer>")


def replied(group, reward, *said):
    """The group with replies to those that gave an answer."""
    return answered(group, [f"<answer>{word}</answer>" if word else "" for word in said], (reward,))


def scored(group, reward, *said):
    return reward(replied(group, reward, *said))


def test_every_case_by_hand(group_of):
    group = group_of(*ANSWERS, columns=COLUMNS)
    assert scored(group, REWARD, "4", "5", "4") == [1.5, 0.25, 0, 1.5]
    assert scored(group, REWARD, "5", "4", "") == [0.5, 0, 0, 0.5]
    assert scored(group, REWARD, "6", "6", "7") == [0.5, 0, 0, 0.5]


def test_the_second_asking_keeps_the_thought_and_moves_the_options(group_of):
    group = group_of(*ANSWERS, columns=COLUMNS)
    asked = REWARD.follow_ups(group)
    assert len(asked) == 3 and asked == REWARD.follow_ups(group) and len({task.id for task in asked}) == 3
    for task, thought in zip(asked, ("<think>w</think>", "", "<think>v</think>"), strict=True):
        *lines, stem = task.prompt.split("\n")
        assert stem == "2+2?" + thought
        assert sorted(line[3:] for line in lines) == ["4", "5", "6"] and [line[3:] for line in lines] != ["4", "5", "6"]
        assert [line[:3] for line in lines] == ["A. ", "B. ", "C. "]


@pytest.mark.parametrize("sample", range(8))
def test_two_options_always_change_places(group_of, sample):
    group = group_of(*["<answer>4</answer>"] * 8, columns={"options": ["4", "5"], "stem": "?"})
    assert REWARD.follow_ups(group)[sample].prompt == "A. 5\nB. 4\n?"


def test_letters_mean_what_stands_at_them(group_of):
    group = group_of("<answer>A</answer>", "<answer>B. 5</answer>", columns={"options": ["4", "5"], "stem": "?"})
    assert scored(group, REWARD, "B", "A") == [1.5, 0.25]  # swapped the second time
    assert scored(group, REWARD, "A", "b.") == [0.5, 0]
    assert [meaning(x, ["4", "5"]) for x in ("(b)", "B. 4", "C", "", None, "5", "A or B")] == [
        "5",
        "B. 4",
        "C",
        "",
        None,
        "5",
        "A or B",
    ]
    assert meaning("B", ["B", "A"]) == "B"  # an option that looks like a letter is itself


def test_reduces_to_grpo_on_the_first_answer(group_of):
    plain = AnswerConsistency(bonus=0.0, first=1.0)
    group = group_of(*ANSWERS[:3], columns=COLUMNS)
    for said in (("4", "5"), ("5", "4"), ("", "")):
        both = score(replied(group, plain, *said), (plain,)), score(group, (ExactAnswer(),))
        ours, first = (GroupNormalized()(pack([one])) for one in both)
        assert torch.equal(ours, first)


def test_a_measure_of_consistency(group_of):
    measure = AnswerConsistency(bonus=0.0, first=0.0, wrong=1.0, weight=0.0)
    assert scored(group_of(*ANSWERS, columns=COLUMNS), measure, "4", "5", "6") == [1, 1, 0, 0]


def test_tasks_without_options_are_not_judged(group_of):
    for columns in ({}, {"options": ["4"], "stem": "?"}):
        group = group_of(*ANSWERS, columns=columns)
        assert REWARD.follow_ups(group) == [] and REWARD(group) == [None] * 4
    nobody = group_of("nothing", columns=COLUMNS)
    assert follow_ups(nobody, (REWARD,)) == [] and REWARD(nobody) == [0]


@pytest.mark.slow
def test_choices_hold_the_answer_first_as_often_as_asked():
    tasks = MultipleChoice(count=3, first=0.6)
    drawn = [tasks[i] for i in range(200)]
    assert all(len(set(t.columns["options"])) == 3 and t.answer in t.columns["options"] for t in drawn)
    assert 100 < sum(t.columns["options"].index(t.answer) == 0 for t in drawn) < 140
    task = drawn[0]
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip("ABC", task.columns["options"], strict=True))
    assert task.prompt == f"{lines}\n{training_tasks()[0].prompt}" and task == tasks[0]


def test_unfit_options_are_refused():
    with pytest.raises(ValueError, match="at most as much"):
        AnswerConsistency(first=2.0)
    with pytest.raises(ValueError, match="from 2 to"):
        MultipleChoice(count=1)
    with pytest.raises(ValueError, match="near misses"):
        replace(MultipleChoice(), tasks=training_tasks("spell_backward"))[0]
