"""A reward of form."""

import pytest

from gimbal.rewards.pattern import Pattern


def test_form(group_of):
    good, bad = "<think>1+1=2</think><answer>2</answer>", "<answer>2</answer>"
    assert Pattern()(group_of(good, f" {good}\n", bad, f"{good} more", "")) == [1, 1, 0, 0, 0]
    assert Pattern(pattern=r"\d+")(group_of("12", "12a")) == [1, 0]


def test_a_broken_pattern_is_told():
    with pytest.raises(ValueError, match="not a valid regular expression"):
        Pattern(pattern="(")
