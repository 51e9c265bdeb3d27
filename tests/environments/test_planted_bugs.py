"""Planted bugs: what triggers them, what is shown and paid, and how many commands there are of each kind."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gimbal.environments.gym import Environment
from gimbal.environments.planted_bugs import BUGS, SLOTS, WORDS, PlantedBugs, commands, planted, triggered


def said(world, command):
    world.reset(seed=0)
    return [world.step(word) for word in command]


@pytest.mark.parametrize("plant", range(5))
def test_each_bug_is_triggered_by_its_two_words_whatever_the_others_are(plant):
    every = commands()
    assert len(np.unique(every, axis=0)) == len(every) == WORDS**SLOTS
    hit = triggered(every, plant)
    assert (hit.sum(0) == WORDS**2).all() and 280 <= hit.any(1).sum() <= BUGS * WORDS**2
    for bug, (one, other, word, another) in enumerate(planted(plant)):
        assert one < other and (every[hit[:, bug]][:, [one, other]] == [word, another]).all()


def test_the_last_word_pays_where_the_command_triggers_a_bug_and_ends_the_episode():
    world = PlantedBugs()
    world.plant = 3
    every = commands()
    hit = triggered(every, 3).any(1)
    for command, pays in ((every[hit][7], 1.0), (every[~hit][7], 0.0)):
        steps = said(world, command)
        assert [step[1] for step in steps] == [0.0, 0.0, 0.0, pays]
        assert [step[2] for step in steps] == [False, False, False, True] and not any(step[3] for step in steps)


def test_what_was_said_is_shown():
    world = PlantedBugs()
    first, _ = world.reset(seed=0)
    assert not first.any()
    last = said(world, (3, 0, 7, 3))[-1][0].reshape(SLOTS, WORDS)
    assert last.argmax(1).tolist() == [3, 0, 7, 3] and (last.sum(1) == 1).all()
    assert said(world, (3, 0))[-1][0].reshape(SLOTS, WORDS)[2:].sum() == 0


def test_other_bugs_are_planted_by_name():
    world = Environment("gimbal.environments.planted_bugs:PlantedBugs@plant=4")
    assert world._env.unwrapped.plant == 4 and not np.array_equal(planted(4), planted(0))
