"""Calls that were made, by hand."""

from dataclasses import replace

import pytest

from gimbal.records import Acted
from gimbal.rewards.tool_calls import ToolCalls


@pytest.mark.parametrize(
    ("measure", "expected"),
    [("count", [0, 0, 2, 5]), ("economy", [1, 1, 1 / 3, 1 / 6]), ("spared", [1, 1, 0.5, 0])],
)
def test_by_hand(group_of, measure, expected):
    """No environment, no call, two calls of which one failed, and five in two turns."""
    acts = (
        None,
        (Acted(0, 0, 0, 0.1),),
        (Acted(0, 1, 1, 0.1), Acted(1, 1, 0, 0.1)),
        (Acted(0, 4, 0, 0.1), Acted(1, 1, 0, 0.1)),
    )
    group = group_of("a", "b", "c", "d")
    made = tuple(replace(episode, acts=done) for episode, done in zip(group.episodes, acts, strict=True))
    assert ToolCalls(measure=measure, most=4)(replace(group, episodes=made)) == pytest.approx(expected)


def test_a_bound_of_no_calls_is_refused():
    with pytest.raises(ValueError, match="most is 0"):
        ToolCalls(most=0)
