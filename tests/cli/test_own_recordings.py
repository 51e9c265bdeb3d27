"""Recorded episodes of one's own, as a newcomer types them: what is meant is done, and what is wrong is one sentence."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("gymnasium")

from gymnasium import make, spaces

from gimbal import cli
from gimbal.environments.gym import Environment
from gimbal.environments.minari import Minari
from gimbal.records import Task

ROBOT = '''
import gymnasium
import numpy as np
from gymnasium import spaces


class Reach(gymnasium.Env):
    """A place that goes to a goal, which a Dict shows."""

    observation_space = spaces.Dict(
        {"pos": spaces.Box(-2, 2, (2,)), "goal": spaces.Box(-1, 1, (2,)), "mode": spaces.Discrete(2)}
    )
    action_space = spaces.Box(np.array([-0.5, -0.2], np.float32), np.array([0.5, 0.4], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.pos, self.goal, self.t = np.zeros(2, np.float32), self.np_random.uniform(-1, 1, 2).astype(np.float32), 0
        return self.seen(), {}

    def seen(self):
        return {"pos": self.pos, "goal": self.goal, "mode": self.t % 2}

    def step(self, action):
        self.pos, self.t = (self.pos + 0.3 * action).astype(np.float32), self.t + 1
        return self.seen(), -float(abs(self.pos - self.goal).sum()), False, self.t >= 5, {}


class Fails(Reach):
    """Where the goal is on the right."""

    def step(self, action):
        if self.goal[0] > 0 and self.t == 3:
            raise RuntimeError("lost contact")
        return super().step(action)


class Dead(Reach):
    def step(self, action):
        raise RuntimeError("no motor")


class Pixels(Reach):
    observation_space = spaces.Box(0, 255, (84, 84, 3), np.uint8)


class Camera(Reach):
    observation_space = spaces.Dict({"pos": spaces.Box(-2, 2, (2,)), "eye": spaces.Box(0, 255, (8, 8), np.uint8)})


class Board(Reach):
    """Numbers, though of uint8 and in two dimensions."""

    observation_space = spaces.Box(0, 2, (3, 3), np.uint8)


def wrapped():
    return gymnasium.make("Pendulum-v1", g=5.0)


gymnasium.register("Reach-v0", entry_point=Reach)
'''
SMALL = ["steps=1", "held_out=none", "threads=1"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Two recordings of the robot, one that names no environment, and an empty directory."""
    monkeypatch.chdir(tmp_path)
    Path("robot.py").write_text(ROBOT)
    Path("empty").mkdir()
    for name, source in (("one", "robot.py:Reach"), ("other", "robot.py:Reach"), ("nameless", "")):
        recorded(Path(name), source)


def recorded(place, source, episodes=3):
    from gimbal.environments.gym import opened

    env = opened("robot.py:Reach")
    (place / "data").mkdir(parents=True)
    with h5py.File(place / "data" / "main_data.hdf5", "w") as file:
        for number in range(episodes):
            env.action_space.seed(number)
            shown, actions, rewards, over = [env.reset(seed=number)[0]], [], [], False
            while not over:
                actions.append(env.action_space.sample())
                seen, reward, _, over, _ = env.step(actions[-1])
                shown.append(seen)
                rewards.append(reward)
            group = file.create_group(f"episode_{number}")
            group["observations"] = [spaces.flatten(env.observation_space, one) for one in shown]
            group["actions"], group["rewards"] = np.array(actions), rewards
            group["terminations"] = np.zeros(len(rewards), bool)
            group["truncations"] = np.arange(len(rewards)) == len(rewards) - 1
    said = {"env_spec": json.dumps({"id": source})} if source else {}
    (place / "data" / "metadata.json").write_text(json.dumps(said))


def train(*words):
    return cli.main(["train", *words, "--dry-run"])


def test_a_dict_is_written_in_the_order_in_which_the_environment_shows_it(desk):
    data = Minari(dataset="one").recording
    world = Environment("robot.py:Reach")
    for number, episode in enumerate(data.episodes):
        assert np.array_equal(world.reset(Task(id="t", seed=number), 0), episode.observation_SO[0])
        for n, action_A in enumerate(episode.action_SA):
            assert np.array_equal(world.step(action_A).observation, episode.observation_SO[n + 1])


@pytest.mark.parametrize("words", [["rlpd", "store.prior.dataset=one"], ["sac", "store.prior=Minari(dataset='one')"]])
def test_a_run_beside_recorded_episodes_acts_where_they_were_recorded(desk, capsys, words):
    assert train(*words) == 0
    assert "the run acts in robot.py:Reach, as one was recorded there" in capsys.readouterr().err
    assert train(*words, "tasks.environment=./robot.py:Reach") == 0, "the same file"
    assert "the run acts in" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["rlpd", "store.prior.dataset=one", "tasks.environment=Pendulum-v1"], "was recorded in robot.py:Reach, and this run acts in"),
        (["rlpd", "store.prior.dataset=one", "env=robot.py:Fails"], "if both are the same, write robot.py:Fails as the id of env_spec"),
        (["rlpd", "store.prior.dataset=nameless"], "this run acts in, 3 observations, 1 real actions: store.prior=none"),
        (["td3_bc", "tasks=one,other"], "one and other hold recorded episodes, and a run takes one data set: gimbal record one"),
        (["td3_bc", "tasks=one*0.5,other*0.5"], "gimbal record one other MIX"),
        (["td3_bc", "tasks={./one: 0.5, gimbal/pendulum/random-v0: 0.5}"], "gimbal record ./one gimbal/pendulum/random-v0 MIX"),
        (["td3_bc", "tasks=empty"], "empty holds no main_data.hdf5: tasks=DIRECTORY"),
        (["dqn", "tasks.environment=robot.py:Pixels"], "robot.py:Pixels shows pixels, a Box of [84, 84, 3] from 0 to 255"),
        (["dqn", "tasks.environment=robot.py:Camera"], "shows pixels, a Box of [8, 8] from 0 to 255"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence(desk, capsys, words, sentence):
    assert train(*words) == 2
    err = capsys.readouterr().err
    assert sentence in err and err.count("\n") == 1


def test_numbers_that_are_no_pixels_and_data_without_a_name_are_taken(desk, capsys):
    assert Environment("robot.py:Board").observations == 9
    assert train("rlpd", "store.prior.dataset=nameless", "tasks.environment=robot.py:Reach") == 0, (
        capsys.readouterr().err
    )
    assert train("td3_bc", "tasks=one") == 0, capsys.readouterr().err


@pytest.mark.slow
def test_episodes_that_break_are_left_out_counted_and_replaced(desk, capsys):
    words = ["learning_starts=100000", "engine.segment=2", "checkpoint_every=1", "policy.hidden=(8,)", *SMALL]
    for name in ("Reach", "Fails"):
        assert cli.main(["train", "td3", f"tasks.environment=robot.py:{name}", "--name", name, *words]) == 0
    capsys.readouterr()
    assert cli.main(["record", "Fails", "whole", "--episodes", "8"]) == 0
    out = capsys.readouterr().out
    count = int(
        re.search(r"(\d+) more broke and are left out \(environment_error\).*raised RuntimeError: lost contact", out)[1]
    )
    data = Minari(dataset="whole").recording
    assert "whole: 8 episodes, 40 steps" in out and 0 < count < 24 and [one.length for one in data.episodes] == [5] * 8
    assert all(one.observation_SO[0, 0] <= 0 for one in data.episodes), "the goals on the left"
    assert len({one.seed for one in data.episodes}) == 8
    assert cli.main(["record", "Fails", "again", "--episodes", "8"]) == 0
    pairs = zip(data.episodes, Minari(dataset="again").recording.episodes, strict=True)
    assert all(np.array_equal(a.action_SA, b.action_SA) for a, b in pairs)

    assert cli.main(["record", "Reach", "sound", "--episodes", "8"]) == 0
    assert "broke" not in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_nothing_is_written_where_too_few_can_be_recorded(desk, capsys):
    words = ["learning_starts=100000", "engine.segment=2", "checkpoint_every=1", "policy.hidden=(8,)", *SMALL]
    assert cli.main(["train", "td3", "tasks.environment=robot.py:Reach", "--name", "run", *words]) == 0
    saved = Path("runs/run/recipe.yaml")
    saved.write_text(saved.read_text().replace("robot.py:Reach", "robot.py:Dead"))
    capsys.readouterr()
    assert cli.main(["record", "run", "none", "--episodes", "5"]) == 2
    err = capsys.readouterr().err
    assert "20 of 20 episodes of robot.py:Dead broke, and 5 whole ones are wanted" in err and "no motor" in err
    assert not Path("none").exists()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("robot.py:Reach", "robot.py:Reach"),
        ("robot:Reach-v0", "robot:Reach-v0"),
        ("robot.py:wrapped", "robot.py:wrapped"),
        ("Pendulum-v1", "Pendulum-v1"),
    ],
)
def test_a_recording_names_what_opens_its_environment_again(desk, source, name):
    """Of a wrapper round a registered one, not the one inside of it."""
    spec = json.loads(Environment(source).spec())
    assert spec["id"] == name and Environment(spec["id"]).interface == Environment(source).interface
    if source == "Pendulum-v1":
        assert spec == json.loads(make(source, disable_env_checker=True).spec.to_json())
