"""A reward of form."""

import pytest

from gimbal.rewards.pattern import Pattern


class Group:
    def __init__(self, *texts):
        self.rollouts = [type("Rollout", (), {"text": text}) for text in texts]


def test_form():
    good, bad = "<think>1+1=2</think><answer>2</answer>", "<answer>2</answer>"
    assert Pattern()(Group(good, f" {good}\n", bad, f"{good} more", "")) == [1, 1, 0, 0, 0]
    assert Pattern(pattern=r"\d+")(Group("12", "12a")) == [1, 0]


def test_a_broken_pattern_is_told():
    with pytest.raises(ValueError, match="no regular expression"):
        Pattern(pattern="(")
