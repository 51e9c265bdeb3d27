"""What is told of a grid is what stands in it, and words are actions."""

import pytest

pytest.importorskip("minigrid", reason="minigrid is not here: make test-environments installs it")
from gimbal.environments.minigrid import MiniGrid, MiniGridTasks
from gimbal.records import Task


def test_a_grid_in_words():
    """An empty room of 5 x 5: the agent in a corner looks to the right, along a wall; the goal is 2 cells on and 2 to the side."""
    live = MiniGrid().open()
    said = live.reset(MiniGridTasks(level="MiniGrid-Empty-5x5-v0")[0], 0)
    assert said.startswith(
        "Mission: get to the green goal square.\nYou see a wall 3 ahead; a green goal 2 ahead, 2 to the right."
    )
    assert "a wall 2 ahead; a green goal 1 ahead, 2 to the right" in live.step("I go forward.").observation
    assert "a green goal 2 to the right. You" in live.step("forward").observation  # beside it, the wall before
    assert "a wall 3 ahead; a green goal 2 ahead. You carry nothing." in live.step("turn right").observation
    assert live.step("hm").observation.startswith("That is no action; left, right, forward")
    live.step("forward")
    end = live.step("FORWARD!")
    assert end.terminated and 0.9 < end.reward < 1


def test_its_limit_is_a_truncation_and_strangers_are_named():
    live = MiniGrid().open()
    live.reset(MiniGridTasks()[0], 0)
    moments = [live.step("left") for _ in range(64)]
    assert moments[-1].truncated and not moments[-1].terminated and not any(one.ended for one in moments[:-1])
    with pytest.raises(ValueError, match="no column level"):
        live.reset(Task(id="x"), 0)
    with pytest.raises(ValueError, match="gymnasium does not make 'BabyAI-Nothing-v0'"):
        live.reset(Task(id="x", columns={"level": "BabyAI-Nothing-v0"}), 0)
