"""Attributes set by the name of an environment, families of them, and evaluations over a family."""

import json

import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv, PendulumEnv

from gimbal import config, recipes
from gimbal.config import Text
from gimbal.environments.gym import Gymnasium, Registered, opened
from gimbal.runtime.local import Trainer


def test_a_mass_and_a_length_change_what_a_push_does():
    """Of a pendulum that hangs still: speed after a step = 3 u dt / (m l^2)."""
    for mass, length in ((1.0, 1.0), (2.0, 1.0), (1.0, 0.5)):
        env = opened(f"Pendulum-v1@m={mass},l={length}")
        env.reset(seed=0)
        env.unwrapped.state = np.array([np.pi, 0.0])
        env.step(np.array([1.0], np.float32))
        assert env.unwrapped.state[1] == pytest.approx(3 * 0.05 / (mass * length**2))


def test_no_attributes_is_the_environment_as_it_is():
    task = Gymnasium(environment="Pendulum-v1", seed=3)[5]
    assert task.id == "Pendulum-v1/3/5" and opened("Pendulum-v1").unwrapped.m == PendulumEnv().m
    assert Gymnasium(environment="Pendulum-v1").sources == ()


def test_what_a_cartpole_computes_from_its_attributes_is_computed_anew():
    inner, plain = opened("CartPole-v1@masspole=0.4,length=1").unwrapped, CartPoleEnv()
    assert (inner.total_mass, inner.polemass_length) == (pytest.approx(1.4), pytest.approx(0.4))
    assert (plain.total_mass, plain.polemass_length) == (pytest.approx(1.1), pytest.approx(0.05))


def test_an_attribute_that_counts_stays_a_whole_number():
    assert type(opened("Pendulum-v1@max_speed=6").unwrapped.max_speed) is int
    assert opened("Pendulum-v1@max_speed=6.5").unwrapped.max_speed == 6.5


def test_a_family_takes_every_combination_in_turn_from_the_same_states():
    tasks = Gymnasium(environment="Pendulum-v1@g=9", grid={"m": (0.5, 2.0), "l": (1.0,)}, size=4)
    heavy, light = "Pendulum-v1@g=9,m=2,l=1", "Pendulum-v1@g=9,m=0.5,l=1"
    assert tasks.sources == (light, heavy) and [task.source for task in tasks] == [light, heavy] * 2
    assert [task.seed for task in tasks][::2] == [task.seed for task in tasks][1::2]
    assert tasks[0].seed != tasks[2].seed and len({task.id for task in tasks}) == 4
    worlds = [Registered(source=task.source).open() for task in tasks]
    begin = [world.reset(task, 0).tolist() for world, task in zip(worlds, tasks, strict=True)]
    assert begin[0] == begin[1] != begin[2]
    after = [world.step(np.array([1.0])).observation.tolist() for world in worlds[:2]]
    assert after[0] != after[1]


def test_a_family_is_found_again():
    """As it is typed, and as it is saved; and the environment of a recording."""
    run = recipes.load("sac", {"tasks.grid.m": Text("[0.5,2]"), "held_out.tasks.grid.l": Text("[1, 1.5]")})
    assert run.tasks.grid == {"m": (0.5, 2.0)} and run.held_out.tasks.grid == {"l": (1.0, 1.5)}
    again = config.read(config.plain(run), type(run))
    assert again.tasks == run.tasks and [again.tasks[i] for i in range(3)] == [run.tasks[i] for i in range(3)]
    named = json.loads(Registered(source="Pendulum-v1@m=2").open().spec())
    assert named["id"] == named["entry_point"] == "Pendulum-v1@m=2"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pendulum-v1@mass=2", r"sets mass, and PendulumEnv has no such number.*it has dt, g, l, m, max_speed"),
        ("CartPole-v1@len=2", r"did you mean length\?"),
        ("Pendulum-v1@m", r"sets 'm'; behind the @ are attributes and their numbers, as in"),
        ("Pendulum-v1@m=inf", r"sets 'm=inf'"),
        ("Pendulum-v1@render_mode=1", r"has no such number"),
    ],
)
def test_a_name_that_sets_what_is_not_there_is_refused(name, said):
    with pytest.raises(ValueError, match=said):
        opened(name)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"grid": {"m": ()}}, r"grid has m: \[\]; give each attribute one value or more"),
        ({"grid": {"m": (1.0, 1.0)}}, r"each once"),
        ({"grid": {"m": (1.0, float("nan"))}}, r"not all of them finite"),
        ({"grid": {"m": (1.0, 2.0)}, "environment": "Pendulum-v1@m=1"}, r"Pendulum-v1@m=1 sets already"),
        ({"grid": {"m": (1.0, 2.0)}, "size": 1}, r"2 combinations, and there are 1 episodes"),
        ({"grid": {"m": tuple(map(float, range(1, 99)))}}, r"64 are the most"),
    ],
)
def test_a_grid_that_says_nothing_is_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Gymnasium(**{"environment": "Pendulum-v1", **settings})


CRASH = """
import gymnasium, numpy as np

class Crash(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    m = 1.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self.m == 2:
            raise RuntimeError("it broke")
        self.steps += 1
        return np.zeros(2, np.float32), self.m, self.steps == 5, False, {}
"""


def test_an_evaluation_says_how_the_worst_of_a_family_did():
    changes = {"held_out.tasks.grid.length": Text("[0.25, 2]"), "held_out.tasks.size": Text("6")}
    trainer = Trainer(recipes.load("dqn", changes))
    trainer.begin()
    found = trainer.evaluate()
    trainer.close()
    metrics, names = found.metrics(), [f"CartPole-v1@length={length}" for length in ("0.25", "2")]
    each = [metrics[f"eval/source/{name}/score"] for name in names]
    assert metrics["eval/worst/score"] == min(each) < max(each) and metrics["eval/score"] == pytest.approx(
        sum(each) / 2
    )
    assert metrics["eval/worst/greedy_score"] <= metrics["eval/greedy_score"]


def test_no_worst_is_told_where_one_of_a_family_always_breaks(tmp_path, monkeypatch):
    """Its survivors would be the best of all policies that break the hardest."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "crash.py").write_text(CRASH)
    grid = {f"{place}.grid.m": Text("[1, 2, 3]") for place in ("tasks", "held_out.tasks")}
    trainer = Trainer(
        recipes.load("dqn", {"environment": Text("crash.py:Crash"), **grid, "held_out.tasks.size": Text("6")})
    )
    trainer.begin()
    metrics = trainer.evaluate().metrics()
    trainer.close()
    assert metrics["eval/failed"] > 0 and "eval/source/crash.py:Crash@m=1/score" in metrics
    assert not [name for name in metrics if name.startswith("eval/worst") or "m=2" in name]


def test_a_run_keeps_the_policy_that_is_best_in_the_worst(tmp_path):
    import gimbal

    changes = {"tasks__grid": {"length": [0.25, 2]}, "held_out__tasks__grid": {"length": [0.25, 2]}}
    changes |= {"held_out__every": 2, "held_out__save_best": "worst/greedy_score", "held_out__tasks__size": 4}
    result = gimbal.train("dqn", runs=tmp_path, steps=4, **changes)
    kept = json.loads((result.directory / "best" / "evaluation.json").read_text())
    assert kept["metric"] == "eval/worst/greedy_score" and kept["value"] == kept["figures"][kept["metric"]]
    assert kept["value"] > result.summary.before["eval/worst/greedy_score"]


def test_a_run_over_a_family_resumes_to_the_same_bits(tmp_path):
    """Off policy, so that episodes of several variants are under way at the checkpoint."""
    from safetensors.torch import load_file

    import gimbal

    changes = {"tasks__grid": {"length": [0.25, 2]}, "held_out": None, "store__learning_starts": 100}
    changes |= {"checkpoint_every": 3, "update__optimization__decay": "constant"}
    whole = gimbal.train("dqn", runs=tmp_path, name="whole", steps=6, **changes)
    gimbal.train("dqn", runs=tmp_path, name="stopped", steps=3, **changes)
    resumed = gimbal.train(runs=tmp_path, resume="stopped", steps=6)
    one, other = (load_file(each.directory / "model" / "model.safetensors") for each in (whole, resumed))
    assert all(one[name].equal(other[name]) for name in one)
    rows = [json.loads(line) for line in (resumed.directory / "metrics.jsonl").read_text().splitlines()]
    played = {name for row in rows for name in row if name.startswith("source/") and name.endswith("/frac")}
    assert played == {"source/CartPole-v1@length=0.25/frac", "source/CartPole-v1@length=2/frac"}
