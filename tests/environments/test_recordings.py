"""Recorded episodes: what is written is what is read, by Minari too; ends; and data that are wrong, each refused in a sentence."""

import json
import shutil
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

h5py = pytest.importorskip("h5py")

from gimbal import recipes
from gimbal.cli import main
from gimbal.dataflow.replay.recorded import recorded
from gimbal.engines.base import Request
from gimbal.engines.playback import played
from gimbal.environments import behaviors, point_maze
from gimbal.environments.gym import Environment
from gimbal.environments.merging_plans import plans
from gimbal.environments.minari import Minari
from gimbal.environments.recording import DATA, METADATA, RecordedEpisode, Recording, joined, read, write
from gimbal.policies.control import StepSampling


def episode(steps, terminated, seed=0, observations=3, actions=1):
    g = np.random.default_rng(seed)
    return RecordedEpisode(
        observation_SO=g.standard_normal((steps + 1, observations)).astype(np.float32),
        action_SA=g.uniform(-2, 2, (steps, actions)).astype(np.float32),
        reward_S=g.standard_normal(steps).astype(np.float32),
        terminated=terminated,
        seed=seed,
    )


FEW = Recording(source="Pendulum-v1", episodes=(episode(4, False, 1), episode(1, True, 2), episode(3, True, 3)))


@pytest.fixture
def there(tmp_path):
    write(FEW, tmp_path / "few", "few-v0")
    return tmp_path / "few"


def same(one, other):
    assert (one.source, one.interface) == (other.source, other.interface)
    for a, b in zip(one.episodes, other.episodes, strict=True):
        assert (a.terminated, a.seed) == (b.terminated, b.seed)
        for name in ("observation_SO", "action_SA", "reward_S"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), name


def test_what_is_written_is_what_is_read(there):
    same(read(there / "data"), FEW)
    same(Minari(dataset=str(there)).recording, FEW)
    same(Minari(dataset=str(there / "data")).recording, FEW)


def test_costs_are_written_and_read_and_belong_to_the_observations_beside_an_action(tmp_path):
    cost_S = [np.arange(e.length + 1, dtype=np.float32) for e in FEW.episodes]
    told = replace(FEW, episodes=tuple(replace(e, cost_S=c) for e, c in zip(FEW.episodes, cost_S, strict=True)))
    write(told, tmp_path / "told", "told-v0")
    found = read(tmp_path / "told" / "data")
    assert found.costs and not FEW.costs and "cost/here" not in recorded(FEW)[0].facts
    rows = recorded(found)[0]
    assert rows.facts["cost/here"][:, 0].tolist() == [0, 1, 2, 3, 0, 0, 1, 2]
    assert rows.facts["cost/after"][:, 0].tolist() == [1, 2, 3, 4, 1, 1, 2, 3]
    half = replace(told, episodes=(told.episodes[0], FEW.episodes[1]))
    assert not half.costs and not recorded(half)[0].facts, "costs of some episodes are no constraint of all"
    with h5py.File(tmp_path / "told" / "data" / DATA, "a") as file:
        del file["episode_0/infos/cost"]
        file["episode_0/infos/cost"] = np.zeros(4)
    with pytest.raises(ValueError, match="4 rewards and 4 infos/cost, where 5 belong"):
        read(tmp_path / "told" / "data")


def test_a_data_set_is_found_by_the_name_that_minari_keeps_it_under(there, monkeypatch, tmp_path):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    shutil.move(there, tmp_path / "own" / "few-v0")
    same(Minari(dataset="own/few-v0").recording, FEW)


def test_minari_itself_reads_what_is_written(there):
    spec = find_spec("minari")
    if spec is None or spec.origin is None:  # a directory of that name, as other tests make, is no package
        pytest.skip("minari is not installed")
    from minari import MinariDataset

    data = MinariDataset(there / "data")
    assert data.total_episodes == 3 and data.total_steps == 8 and data.env_spec.id == "Pendulum-v1"
    assert data.action_space.low.tolist() == [-2.0]
    for theirs, ours in zip(data.iterate_episodes(), FEW.episodes, strict=True):
        assert np.array_equal(theirs.observations, ours.observation_SO)
        assert theirs.terminations.tolist() == [False] * (ours.length - 1) + [ours.terminated]
        assert theirs.truncations.tolist() == [False] * (ours.length - 1) + [not ours.terminated]


def test_only_a_termination_has_nothing_after_it():
    """The last observation is that of the episode itself, and no row reaches into the next one."""
    rows = recorded(FEW)[0]
    steps = rows.decisions
    assert steps.ended_NS[:, 0].tolist() == [False] * 4 + [True] + [False, False, True]
    at = 0
    for one in FEW.episodes:
        for n in range(one.length):
            assert torch.equal(steps.observation_NSO[at, 0], torch.from_numpy(one.observation_SO[n]))
            assert torch.equal(steps.next_NSO[at, 0], torch.from_numpy(one.observation_SO[n + 1]))
            assert float(rows.reward_NS[at, 0]) == one.reward_S[n]
            at += 1
    assert at == FEW.steps == rows.shape[0]


def test_an_episode_is_played_back_as_it_was(there):
    tasks = Minari(dataset=str(there))
    for most, stops in ((10, ["truncated", "terminated", "terminated"]), (2, ["truncated", "terminated", "truncated"])):
        asked = [
            Request(group=n, task=tasks[n], sample=0, sampling=StepSampling(max_length=most), seed=0) for n in range(3)
        ]
        rows = [played(request, 5) for request in asked]
        assert [row.stop for row in rows] == stops
        for row, one in zip(rows, FEW.episodes, strict=True):
            row.validate()
            assert row.length == min(most, one.length) and set(row.version_S.tolist()) == {5}
            assert torch.equal(row.decisions.final_NO[0], torch.from_numpy(one.observation_SO[row.length]))
            assert bool(row.decisions.terminated_N) == (row.stop == "terminated")


def test_spaces_of_many_kinds_read_as_an_environment_shows_them(tmp_path):
    """A Dict of a vector, a choice and a Tuple, in the order of gymnasium's own flattening."""
    from gymnasium import spaces

    space = spaces.Dict(
        {
            "z": spaces.Box(-1, 1, (2,)),
            "a": spaces.Discrete(3, start=1),
            "m": spaces.Tuple([spaces.MultiBinary(2), spaces.Box(0, 1, (1, 2))]),
        }
    )
    space.seed(0)
    shown = [space.sample() for _ in range(3)]
    place = tmp_path / "data"
    place.mkdir()
    box = {"type": "Box"}
    inner = {
        "z": box,
        "a": {"type": "Discrete", "n": 3, "start": 1},
        "m": {"type": "Tuple", "subspaces": [{"type": "MultiBinary"}, box]},
    }
    with h5py.File(place / DATA, "w") as file:
        group = file.create_group("episode_0")
        sights = group.create_group("observations")
        sights["z"], sights["a"] = np.stack([s["z"] for s in shown]), np.array([s["a"] for s in shown])
        several = sights.create_group("m")
        for n in (0, 1):
            several[f"_index_{n}"] = np.stack([s["m"][n] for s in shown])
        group["actions"], group["rewards"] = np.array([2, 0]), np.zeros(2)
        group["terminations"], group["truncations"] = np.zeros(2, bool), np.zeros(2, bool)
    spec = {
        "observation_space": json.dumps({"type": "Dict", "subspaces": inner}),
        "action_space": json.dumps({"type": "Discrete", "n": 4}),
    }
    (place / METADATA).write_text(json.dumps(spec))
    found = read(place)
    assert np.allclose(found.episodes[0].observation_SO, [spaces.flatten(space, s) for s in shown])
    assert found.interface == "9 observations, 4 choices" and found.episodes[0].action_SA.tolist() == [[2], [0]]
    assert found.source == "" and not found.episodes[0].terminated, "what neither ended nor was cut off was cut off"


# What is wrong, and what is said of it.


def spoil(there, change):
    with h5py.File(there / "data" / DATA, "a") as file:
        change(file)


def put(name, values, number=0):
    def change(file):
        group = file[f"episode_{number}"]
        del group[name]
        if values is not None:
            group[name] = values

    return change


WRONG = {
    "has no rewards": put("rewards", None),
    "has no truncations": put("truncations", None),
    "4 rewards and 4 observations, where 5 belong": put("observations", np.zeros((4, 3))),
    "4 rewards and 3 actions, where 4 belong": put("actions", np.zeros((3, 1))),
    "has observations that are NaN": put("observations", np.full((5, 3), np.nan)),
    "has rewards that are NaN or infinite": put("rewards", np.array([0, 1, np.inf, 0])),
    "has actions that are NaN": put("actions", np.array([[0], [1], [np.nan], [0]])),
    "goes on after its end .* at step 1": put("terminations", np.array([False, True, False, True])),
    r"several sizes \(observation and action: 3 and 1, 4 and 1\)": put("observations", np.zeros((5, 4))),
    "has no steps": lambda file: [
        put(n, np.zeros((int(n == "observations"), 3)))(file)
        for n in ("observations", "actions", "rewards", "terminations", "truncations")
    ],
    "holds no episodes": lambda file: [file.pop(name) for name in list(file)],
}


@pytest.mark.parametrize("said", WRONG)
def test_wrong_data_are_refused(there, said):
    spoil(there, WRONG[said])
    with pytest.raises(ValueError, match=said):
        read(there / "data")


@pytest.mark.parametrize("said", ["is not what Minari writes", "the data are arrow", "cannot be read"])
def test_wrong_files_are_refused(there, said):
    metadata = there / "data" / METADATA
    if "arrow" in said:
        metadata.write_text(metadata.read_text().replace('"hdf5"', '"arrow"'))
    elif "Minari" in said:
        metadata.write_text("[]")
    else:
        path = there / "data" / DATA
        path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match=said):
        read(there / "data")


def test_a_directory_is_not_written_over(there):
    with pytest.raises(ValueError, match="is there already"):
        write(FEW, there, "few-v0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tasks.dataset=gimbal/pendulum/mixd-v0"], "did you mean gimbal/pendulum/mixed-v0"),
        (["policy.observations=4"], "has 3 observations, 1 real actions, and the policy 4 observations"),
        (["held_out.tasks.environment=CartPole-v1"], "which the evaluation plays, 4 observations, 2 choices"),
        (["policy=Categorical(observations=3,actions=2)"], "the policy 3 observations, 2 choices"),
        (
            ["engine=Episodes()", "tasks=Gymnasium(environment='Pendulum-v1')", "held_out=none"],
            "Recordings draws from recorded episodes",
        ),
        (["update.optimization.minibatches=2"], "store.moves"),
        (["store.moves=0"], "must be at least 1"),
    ],
)
def test_a_run_that_does_not_fit_its_data_ends_with_code_2(words, said, capsys, tmp_path):
    assert main(["train", "iql", *words, f"--runs={tmp_path}"]) == 2
    assert said in capsys.readouterr().err


def test_data_that_are_wrong_end_a_command_with_code_2(there, capsys, tmp_path):
    spoil(there, put("observations", np.full((5, 3), np.nan)))
    assert main(["train", "iql", f"tasks={there}", f"--runs={tmp_path}"]) == 2
    told = capsys.readouterr().err
    assert "episode_0 has observations that are NaN" in told and "Traceback" not in told


def test_another_data_set_brings_its_sizes_and_its_evaluation():
    run = recipes.load("iql", {"tasks": "gimbal/maze/stitch-v0"})
    assert isinstance(run.tasks, Minari) and run.held_out.tasks.environment == behaviors.MAZE
    assert (run.policy.observations, run.policy.actions) == (2, 2)
    critic = run.update.critic
    assert (critic.observations, critic.actions, critic.bound) == (2, 2, pytest.approx(point_maze.REACH))


# What is made here.


@pytest.mark.parametrize("name", sorted(behaviors.MADE))
def test_data_are_made_alike_twice(name, monkeypatch):
    short = {
        "gimbal/maze/stitch-v0": lambda: behaviors.stitch(5),
        "gimbal/cart/bounds-v0": lambda: behaviors.cart(3),
        "gimbal/line/partings-v0": lambda: behaviors.line(3),
        "gimbal/merging/plans-v0": lambda: plans(3),
        "gimbal/merging/random-v0": lambda: behaviors.steady(3),
        "gimbal/cart/hidden-v0": lambda: behaviors.wandering(3),
        "gimbal/dock/demos-v0": lambda: behaviors.docking(3),
    }
    rules = {"random": behaviors.at_random, "medium": behaviors.MEDIUM, "expert": behaviors.EXPERT}
    quality = name.split("/")[-1].removesuffix("-v0")
    make = short.get(name) or (lambda: behaviors.pendulum(quality, rules.get(quality, behaviors.EXPERT), 2))
    one, other = make(), make()
    same(one, other)
    assert one.source == behaviors.MADE[name][0]
    world = Environment(one.source)
    assert one.interface == world.interface
    for episode in one.episodes:  # its seed and actions bring the same episode back
        seen, _ = world._env.reset(seed=episode.seed, options=None)
        if quality in ("stitch", "bounds", "plans"):
            continue  # begun at a place of its own, or by two rules
        for n, action in enumerate(episode.action_SA):
            assert np.array_equal(world._shown(seen, "step"), episode.observation_SO[n])
            seen, reward, *_ = world._env.step(action)
            assert np.float32(reward) == episode.reward_S[n]


def test_qualities_are_in_order():
    rules = (("random", behaviors.at_random), ("medium", behaviors.MEDIUM), ("expert", behaviors.EXPERT))
    worse, middle, best = (np.mean(behaviors.pendulum(name, rule, 20).returns()) for name, rule in rules)
    assert worse < -1000 and worse + 300 < middle < best - 150 and best > -300


def test_no_recorded_way_leads_from_the_start_to_the_goal():
    """Yet all of the way is shown, in parts."""
    data, there = behaviors.stitch(200), set()
    for episode in data.episodes:
        places = (episode.observation_SO + 1) / 2 * len(point_maze.WALLS)
        cells = [point_maze.cell_of(place) for place in places]
        assert not (point_maze.START in cells and point_maze.GOAL in cells[cells.index(point_maze.START) :])
        assert set(cells) <= point_maze.FREE
        there |= {(one, other) for one, other in pairwise(cells) if one != other}
    away = point_maze.distances(point_maze.GOAL)
    cell = point_maze.START
    while cell != point_maze.GOAL:
        nearer = [other for one, other in there if one == cell and away[other] < away[cell]]
        assert nearer, f"nobody goes on from {cell}"
        cell = nearer[0]
    assert away[point_maze.START] == 12


def test_the_maze_pays_at_its_goal_alone():
    world = Environment(behaviors.MAZE)._env
    seen, _ = world.reset(seed=0)
    away, total = point_maze.distances(point_maze.GOAL), 0.0
    for _ in range(100):
        before = world.place.copy()
        seen, reward, terminated, truncated, _ = world.step(point_maze.towards(world.place, away))
        assert np.abs(world.place - before).max() <= point_maze.REACH + 1e-9
        total += reward
        if terminated:
            break
    assert total == 1.0 and terminated and not truncated and 40 <= world.steps <= 70
    world.reset(seed=0)
    for _ in range(100):  # into a wall, for good
        seen, reward, terminated, truncated, _ = world.step(np.array([-1.0, -1.0]))
    assert truncated and not terminated and seen[1] < -0.9 and point_maze.cell_of(world.place) == point_maze.START


def test_a_mixture_is_one_from_its_beginning():
    mixed = joined(
        [
            Recording(source="Pendulum-v1", episodes=tuple(episode(1, False, s) for s in seeds))
            for seeds in (range(4), range(10, 12))
        ]
    )
    assert [one.seed for one in mixed.episodes] == [0, 10, 1, 2, 11, 3]
    with pytest.raises(ValueError, match="are not of one environment"):
        joined([FEW, replace(FEW, source="CartPole-v1")])


def test_a_task_that_is_not_there():
    with pytest.raises(IndexError):
        Minari(dataset="gimbal/maze/stitch-v0")[10**6]
    assert Path("gimbal/maze/stitch-v0").exists() is False
