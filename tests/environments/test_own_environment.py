"""An environment of a user's own, by its class or by the name under which a module registers it."""

import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from gimbal import recipes
from gimbal.config import Text, dump
from gimbal.environments.gym import Environment, Gymnasium, Registered
from gimbal.records import Task

PAGE = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
CORRIDOR = re.search(r"```python\n(import gymnasium.*?)```", PAGE, re.DOTALL)[1]
BROKEN = "\n\nclass Broken:\n    def __init__(self):\n        self.x = nothing\n\n\nclass Other:\n    pass\n"
SPACES = """

class Blind(Corridor):
    observation_space = None


class Still(Corridor):
    action_space = gymnasium.spaces.Box(-1, 1, (0,), np.float32)


class Strange(Corridor):
    action_space = 5


class Bare(gymnasium.Env):
    pass
"""
REGISTERED = "\n\ngymnasium.register('Corridor-v7', entry_point=Corridor, max_episode_steps=3)\n"


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("corridor.py").write_text(CORRIDOR + BROKEN + SPACES + REGISTERED)


def test_a_class_is_an_environment():
    run = recipes.load("cartpole", {"tasks.environment": Text("corridor.py:Corridor")})
    world = Registered(source=run.tasks[0].source).open()
    assert (run.policy.observations, run.policy.actions) == (world.observations, world.actions) == (2, 2)
    assert run.held_out.tasks.environment == "corridor.py:Corridor"
    world.reset(run.tasks[0], seed=0)
    moments = [world.step(np.array([1])) for _ in range(5)]
    assert [moment.terminated for moment in moments] == [False] * 4 + [True] and moments[-1].reward == 1.0


def test_a_class_itself_is_saved_by_reference():
    owned = Registered(source="corridor.py:Corridor").open()
    tasks = Gymnasium(environment=type(owned._env))
    assert tasks.environment == f"{Path('corridor.py').resolve()}:Corridor"
    assert "corridor.py:Corridor" in dump(recipes.load("cartpole", {"tasks": tasks}), "cartpole")
    assert Registered(source=tasks[0].source).open().interface == owned.interface


def test_a_name_that_the_file_registers():
    world = Registered(source="corridor.py:Corridor-v7").open()
    world.reset(Gymnasium()[0], seed=0)
    assert [world.step(np.array([0])).truncated for _ in range(3)] == [False, False, True]  # gymnasium's own limit


STRANGE = {  # what a step answers with: what is said of it
    "[0, 0], 1e300": "returned the reward 1e+300; it must be a finite number of size 1e+15 at most",
    "[0, 0], -1e30": "returned the reward -1e+30; it must be",
    "[0, 0], '1'": "returned the reward '1'; it must be",
    "[0, 0], 10**400": "returned the reward 1000",
    "[0, 3e38], 0": "returned an observation with 3e+38; all its numbers must be finite, and of size 1e+15 at most",
    "[0, -1e16], 0": "returned an observation with -1e+16; all",
    "[0, float('nan')], 0": "returned an observation with nan; all",
}


@pytest.mark.parametrize("answer", STRANGE)
def test_numbers_that_would_spoil_the_weights_are_no_answer(answer):
    Path("strange.py").write_text(
        CORRIDOR + f"\n\n    def step(self, action):\n        return *({answer}), False, False, {{}}\n"
    )
    world = Registered(source="strange.py:Corridor").open()
    world.reset(Gymnasium()[0], seed=0)
    with pytest.raises(ValueError, match=re.escape(STRANGE[answer])) as refused:
        world.step(np.array([0]))
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("said", ["yes", float("nan"), 2, [True]])
def test_a_success_that_is_no_truth_value_is_refused(said):
    class Sure(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), 0.0, False, False, {"is_success": said}

    gymnasium.register("Sure-v0", Sure)
    live = Environment("Sure-v0")
    live.reset(Task(id="0", source="Sure-v0", seed=0), 0)
    with pytest.raises(ValueError, match=r"Sure-v0\.step says is_success=.* in its info; it must be True or False"):
        live.step(np.zeros(1, np.float32))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((np.zeros(1), 0.0, "no", False, {}), r"step returned terminated='no'; it must be True or False"),
        (
            (np.zeros(1), 0.0, False, np.array([True, False]), {}),
            r"step returned truncated=.*; it must be True or False",
        ),
        (("hello", 0.0, False, False, {}), "step returned the observation 'hello', which is no array of numbers"),
    ],
)
def test_an_end_that_is_no_truth_value_and_an_observation_of_words_are_refused(answer, sentence):
    class Wordy(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Box(-1, 1, (1,)), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return answer

    live = Environment("Wordy-v0", of=Wordy())
    live.reset(Task(id="0", source="Wordy-v0", seed=0), 0)
    with pytest.raises(ValueError, match=sentence):
        live.step(np.zeros(1, np.float32))


def test_an_observation_that_lacks_a_part_is_refused_by_its_name():
    class Partial(gymnasium.Env):
        observation_space = gymnasium.spaces.Dict({name: gymnasium.spaces.Box(-1, 1, (1,)) for name in ("near", "far")})
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            return {"near": np.zeros(1, np.float32)}, {}

    gymnasium.register("Partial-v0", Partial)
    with pytest.raises(
        ValueError, match=r"Partial-v0\.reset returned an observation without 'far', which its observation_space has"
    ):
        Environment("Partial-v0").reset(Task(id="0", source="Partial-v0", seed=0), 0)


def test_large_numbers_are_answers():
    Path("large.py").write_text(
        CORRIDOR + "\n\n    def step(self, action):\n        return [1e15, -1e15], -1e15, False, False, {}\n"
    )
    world = Registered(source="large.py:Corridor").open()
    world.reset(Gymnasium()[0], seed=0)
    moment = world.step(np.array([0]))
    assert moment.reward == -1e15 and moment.observation.tolist() == pytest.approx([1e15, -1e15])


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("CartPol-v1", r"did you mean CartPole-v1\?.*one of your own is file.py:Class"),
        ("corridor.py:Corridr-v1", r"one of your own is file.py:Class"),
        (
            "corridor.py:Broken",
            r"corridor.py:Broken raises NameError: name 'nothing' is not defined \(corridor.py, line \d+",
        ),
        ("corridor.py:Other", "makes a Other; a gymnasium.Env is wanted"),
        ("nowhere:Other-v0", "there is no module nowhere"),
        (
            "corridor.py:Blind",
            "corridor.py:Blind has the observation_space None, which holds no number; set a gymnasium space",
        ),
        ("corridor.py:Still", r"corridor.py:Still has the action_space Box\(.*, which holds no number"),
        ("corridor.py:Strange", "corridor.py:Strange has the action_space 5, which holds no number"),
        ("corridor.py:Bare", "corridor.py:Bare has no observation_space; set it in the class"),
    ],
)
def test_what_is_no_environment_is_refused_with_the_remedy(source, sentence):
    with pytest.raises(ValueError, match=sentence):
        Registered(source=source).open()
