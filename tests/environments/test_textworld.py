"""TextWorld's quests in words, and what may not be said to its interpreter."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

pytest.importorskip("textworld", reason="textworld is not here: make test-environments installs it")
from gimbal.environments.textworld import TextWorld, TextWorldTasks
from gimbal.records import Task

TASKS = TextWorldTasks(rooms=2, objects=2, quest=2)


def test_a_quest_in_words():
    live = TextWorld().open()
    begun = live.reset(TASKS[0], 0)
    assert "-= " in begun and "$$" not in begun and ">" not in begun, "without the banner and the prompt"
    first, last = TASKS.solution(TASKS[0])
    before = live.step(f"First I have a look around.\n> {first.upper()}.")
    assert before.reward == 0 and not before.ended and before.observation
    end = live.step(last)
    assert end.reward == 1 and end.terminated and "The End" in end.observation


def test_only_commands_of_the_game_reach_its_interpreter(tmp_path, monkeypatch):
    """save and script would write files, and restart begin anew."""
    monkeypatch.chdir(tmp_path)
    live = TextWorld().open()
    live.reset(TASKS[0], 0)
    for said in (
        "save",
        "script",
        "restart",
        "quit",
        "look. save",
        "look then script",
        "look, save",
        "tw-print",
        "look\x00",
        "\x00look",
        "examine \ud800",
        "",
        "hm",
    ):
        moment = live.step(said)
        assert moment.observation.startswith("That is no command. One begins with close, drop, east"), said
        assert (moment.calls, moment.errors, moment.ended) == (1, 1, False)
    assert not os.listdir(tmp_path)
    assert live.step("examine nothing at all").errors == 0, "what the game itself refuses is an answer of the game"


def test_worlds_are_played_from_several_threads_at_once():
    """The package's parser of rules breaks there, and its generator: one call at a time."""

    def solved(index):
        live = TextWorld().open()
        live.reset(TASKS[index // 2], 0)
        return sum(live.step(command).reward for command in TASKS.solution(TASKS[index // 2]))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(solved, range(6))) == [1.0] * 6


def test_worlds_are_of_the_shape_that_was_asked_for_and_strangers_are_named():
    for shape in ((1, 1, 1), (5, 6, 4)):
        tasks = TextWorldTasks(rooms=shape[0], objects=shape[1], quest=shape[2])
        live = TextWorld().open()
        live.reset(tasks[1], 0)
        moments = [live.step(command) for command in tasks.solution(tasks[1])]
        assert len(moments) == shape[2] and sum(moment.reward for moment in moments) == 1 and moments[-1].terminated
    with pytest.raises(ValueError, match="rooms=0, objects=4 and quest=3: 1 or more"):
        TextWorldTasks(rooms=0)
    with pytest.raises(ValueError, match="no column world"):
        TextWorld().open().reset(Task(id="x"), 0)
