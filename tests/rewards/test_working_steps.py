"""Steps of a working: where they are, what is counted of them, and how they become turns."""

import made
import pytest
import torch
from jaxtyping import TypeCheckError

from gimbal.dataflow.filters.step_turns import StepTurns
from gimbal.policies.token import Tokens
from gimbal.records import Group, Task
from gimbal.rewards.working_steps import WorkingSteps, step_spans

SOUND = "<think>77+90=167 167-67=100</think><answer>100</answer>"
SLIP = "<think>77+90=168 168-67=101</think><answer>101</answer>"
LATE = "<think>77+90=167 167-67=99</think><answer>99</answer>"
GUESS = "<answer>100</answer>"
GLANCE = "<think>~157 ~90</think><answer>90</answer>"
RAMBLE = "<think>77+90=167 167-67=100 100-0=100</think><answer>100</answer>"
CUT = "<think>77+90=167 167-6"
EVERY = (SOUND, SLIP, LATE, GUESS, GLANCE, RAMBLE, CUT)


def measured(group_of, measure, **options):
    reward = WorkingSteps(measure=measure, separator=" ", **options)
    return reward(group_of(*EVERY, answer="100"))


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        ("count", [2, 2, 2, 0, 2, 3, 2]),
        ("right", [2, 0, 1, 0, 0, 3, 1]),
        ("flawed", [0, 1, 1, 1, 1, 0, 1]),
        ("necessary", [2, 2, 2, 0, 2, 2, 2]),
    ],
)
def test_by_hand(group_of, measure, expected):
    assert measured(group_of, measure) == expected


def test_chained_steps_begin_with_the_result_before(group_of):
    group = group_of("<think>1+2=3 4+5=9 9+1=10</think>", SOUND)
    assert WorkingSteps(measure="right", separator=" ")(group) == [3, 2]
    assert WorkingSteps(measure="right", separator=" ", chained=True)(group) == [1, 2]


def test_numbers_are_whole_words(group_of):
    group = group_of("<think>10 100 1000</think>", "<think>-100 1100</think>", answer="100")
    assert WorkingSteps(measure="necessary", separator=" ")(group) == [2, 1]


def test_lines_and_cue_words_part_steps():
    text = "<think>First.\n\nThen so. Wait, no. Hmm\n</think>end"
    spans = step_spans(text, "<think>", "</think>", WorkingSteps().separator)
    assert [text[a:b].strip() for a, b in spans] == ["First.", "Then so.", "Wait, no.", "Hmm"]


def test_unfit_measures_are_refused():
    with pytest.raises((ValueError, TypeCheckError)):
        WorkingSteps(measure="length")
    with pytest.raises(ValueError, match="not a valid regular expression"):
        WorkingSteps(separator="(")


def rollout(text, length, **options):
    return made.rollout(task=Task(id="t"), decisions=Tokens.row([1], [2] * length), text=text, **options)


def turns(text, length, **options):
    made = rollout(text, length, **options)
    return StepTurns(separator=" ")(Group.of(0, made.task, (made,))).rollouts[0].turn_S


def test_steps_become_turns_exactly_where_a_decision_is_a_character_or_a_tag():
    text = "<think>1+2=3 3+4=7</think><answer>7</answer>"  # 1 + 5 + 1 + 5 + 1 + 3 units, and the end-of-text
    assert turns(text, 17).tolist() == [0] * 7 + [1] * 5 + [2] * 5
    assert turns(text, 16).tolist() == [0] * 7 + [1] * 5 + [2] * 4
    assert turns("<think>1+2=3 3+", 10).tolist() == [0] * 7 + [1] * 3  # cut off: nothing follows the working


def test_steps_are_placed_by_their_share_with_other_tokenizers():
    text = "<think>1+2=3 3+4=7</think><answer>7</answer>"
    assert turns(text, 8).tolist() == [0] * 4 + [1] * 2 + [2] * 2


def test_turns_of_an_environment_stay_and_no_working_is_one_turn():
    own = torch.tensor([0, 1, 2])
    assert turns("<think>1 2</think>", 3, turn_S=own) is own
    assert turns("<answer>7</answer>", 4) is None


def test_an_equation_whose_numbers_python_does_not_read_is_not_right(group_of):
    long = "9" * 5000
    reward = WorkingSteps(measure="right", separator=" ")
    assert reward(
        group_of(f"<think>1+1={long} 1+1=2</think><answer>2</answer>", f"<think>{long}+0={long}</think>")
    ) == [0, 0]
