"""A saved world as an environment: one whose steps are known exactly, its members, its horizon, where it begins, and a run in it."""

from collections import Counter
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from gimbal import recipes
from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.transitions import each
from gimbal.engines.base import Request
from gimbal.engines.episodes import Episodes
from gimbal.environments.conformance import Conformance
from gimbal.environments.gym import Environment, Gymnasium, Registered
from gimbal.environments.learned_world import LearnedWorld
from gimbal.environments.recording import RecordedEpisode, Recording, write
from gimbal.learning.updates.td3 import TD3
from gimbal.policies.control import StepSampling
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.diffusion_dynamics import DiffusionDynamics
from gimbal.policies.dynamics import LEAST_LOG_STD, MOST_LOG_STD, Dynamics
from gimbal.policies.planned import Planned, world_in
from gimbal.records import Group
from gimbal.runtime.local import Trainer

SPREAD = 1e-4  # of the targets where their variance is 0


class Line(gymnasium.Env):
    """What is recorded: two numbers, one action between -2 and 2."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)


def far(next_KO):
    return next_KO[:, 0] > 1.9


def saved(place, ends="never", apart=0.0, wide=False):
    """A world of two members, o' = o + (a / 2 +- apart, o_0), r = a, with almost no noise, or with the most and a spread of 1."""
    policy = Planned(world=Dynamics(observations=2, actions=1, hidden=(), members=2, ends=ends), bound=2.0).load(0)
    world, unit = policy.world, 1.0 if wide else SPREAD
    with torch.no_grad():
        world.targets.variance_O.fill_(1.0 if wide else 0.0)
        weight_MIZ, bias_M1Z = world.weights[0].zero_(), world.biases[0].zero_()
        weight_MIZ[:, 2, 0], weight_MIZ[:, 0, 1], weight_MIZ[:, 2, 2] = 0.5 / unit, 1 / unit, 1 / unit
        bias_M1Z[:, 0, 0] = torch.tensor([apart, -apart]) / unit
        bias_M1Z[..., 3:6] = 100.0 if wide else -100.0
    place.mkdir(exist_ok=True)
    policy.save(place)
    return place


@pytest.fixture
def data(tmp_path):
    seen = np.arange(12, dtype=np.float32).reshape(2, 3, 2) / 10
    episodes = [
        RecordedEpisode(
            reward_S=np.zeros(2, np.float32),
            action_SA=np.zeros((2, 1), np.float32),
            observation_SO=observation_SO,
            terminated=False,
        )
        for observation_SO in seen
    ]
    write(Recording(source=f"{__file__}:Line", episodes=tuple(episodes)), tmp_path / "data", "line")
    return str(tmp_path / "data")


BEGINS = [[0.0, 0.1], [0.2, 0.3], [0.6, 0.7], [0.8, 0.9]]  # recorded steps; nothing was done at the last observations


def test_a_world_that_is_known_exactly_is_the_environment(tmp_path, data):
    env = Environment(f"{saved(tmp_path / 'model')}:{data}@horizon=3")
    assert env.interface == "2 observations, 1 real actions" and env.limits == ([-2.0], [2.0]) and not env.instant
    place, speed = (float(x) for x in env.reset(Gymnasium()[0], 0))
    for number, action in enumerate((1.0, -2.0, 9.0), 1):  # 9 is beyond the bound
        moment = env.step(np.array([action], np.float32))
        action = min(action, 2.0)
        place, speed = place + action / 2, speed + place
        np.testing.assert_allclose(moment.observation, [place, speed], atol=1e-4)
        assert moment.reward == pytest.approx(action, abs=1e-4)
        assert (moment.terminated, moment.truncated) == (False, number == 3)


def test_it_begins_at_recorded_steps_and_a_seed_says_at_which(tmp_path, data):
    world = LearnedWorld(str(saved(tmp_path / "model")), data)
    found = [world.reset(seed=seed)[0].tolist() for seed in range(60)]
    assert [world.reset(seed=seed)[0].tolist() for seed in range(60)] == found
    assert {tuple(np.round(x, 3).tolist()) for x in found} == {tuple(np.round(x, 3)) for x in BEGINS}
    assert world.reset(options={"begin": (5.0, 6.0)})[0].tolist() == [5.0, 6.0]


def test_a_horizon_of_no_steps_is_refused(tmp_path, data):
    world = Environment(f"{saved(tmp_path / 'model')}:{data}@horizon=0")
    with pytest.raises(ValueError, match="horizon 0; it counts the steps of an episode, at least 1"):
        world.reset(Gymnasium()[0], 0)


def test_each_step_is_of_any_member_and_has_that_ones_noise(tmp_path, data):
    """Means 10 apart, so that a step tells whose it is; deviation e^1 in the first number, by the member's own logit."""
    place = saved(tmp_path / "model", apart=20.0, wide=True)
    world, drawn = LearnedWorld(str(place), data), []
    world.reset(seed=1)
    world.horizon = 10**6
    for _ in range(2000):
        world.reset(options={"begin": (0.0, 0.0)})
        drawn.append(world.step(np.zeros(1, np.float32))[0][0])
    own = np.array(drawn) > 0
    assert 0.45 < own.mean() < 0.55
    assert Counter(own[:-1].astype(int) * 2 + own[1:]).most_common()[-1][1] > 400, "drawn for each step"
    assert np.std(np.abs(drawn)) == pytest.approx(np.exp(MOST_LOG_STD), rel=0.05) and LEAST_LOG_STD < MOST_LOG_STD
    assert np.mean(np.abs(drawn)) == pytest.approx(20, rel=0.02)


def played(source, count, slots=1):
    policy = Deterministic(observations=2, actions=1, hidden=(4,), bound=2.0).load(0)
    engine = Episodes(slots=slots).start(policy)
    engine.load(0, policy.state_dict())
    tasks, found = Gymnasium(environment=source), []
    for index in range(count):
        sampling = StepSampling(max_length=100)
        engine.submit(Request(group=index, task=tasks[index], sample=0, sampling=sampling, seed=0))
    while engine.in_flight:
        found += [finished.rollout for finished in engine.step()]
    return found


def test_the_horizon_truncates_and_values_look_beyond_it(tmp_path, data):
    """The reward behind the last step is not 0, and the discount of its value is gamma."""
    rollouts = played(f"{saved(tmp_path / 'model')}:{data}@horizon=4", count=3)
    assert [rollout.stop for rollout in rollouts] == ["truncated"] * 3
    assert [len(rollout.reward_S) for rollout in rollouts] == [4] * 3
    single, _ = each(pack([Group.of(i, rollout.task, [rollout]) for i, rollout in enumerate(rollouts)]))
    assert not single.decisions.ended_NS.any()
    last = single.decisions.final_NO[3::4]
    np.testing.assert_array_equal(last, torch.stack([rollout.decisions.final_NO[0] for rollout in rollouts]))
    update = recipes.function("td3")().update
    assert isinstance(update, TD3)
    _, discount_K = update.backed(single)
    assert discount_K.tolist() == [pytest.approx(update.gamma)] * 12


def test_it_ends_where_the_world_says_so(tmp_path, data):
    place = saved(tmp_path / "model", ends=f"{__file__}:far")
    world = LearnedWorld(str(place), data)
    world.reset(options={"begin": (1.0, 0.0)})
    assert world.step(np.array([1.0]))[2:4] == (False, False) and world.step(np.array([1.0]))[2:4] == (True, False)


def test_it_conforms_and_passes_gymnasiums_own_check(tmp_path, data):
    source = f"{saved(tmp_path / 'model')}:{data}@horizon=5"
    Conformance(
        spec=Registered(source=source),
        tasks=[Gymnasium(environment=source)[n] for n in range(3)],
        oracle=lambda task, seen: np.array([2.0], np.float32),
        null=lambda task, seen: np.array([-2.0], np.float32),
        best=9.99,
        worst=-9.99,
    ).check()
    check_env(Environment(source)._env, skip_render_check=True)


def test_it_passes_the_check_of_stable_baselines3(tmp_path, data):
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker", reason="SB3 is not installed")
    sb3.check_env(Environment(f"{saved(tmp_path / 'model')}:{data}")._env, warn=False)


def test_an_episode_under_way_is_brought_back_to_the_bit(tmp_path, data):
    source = f"{saved(tmp_path / 'model', wide=True)}:{data}@horizon=9"
    policy = Deterministic(observations=2, actions=1, hidden=(4,), bound=2.0).load(0)

    def started():
        engine = Episodes(slots=2).start(policy)
        engine.load(0, policy.state_dict())
        return engine

    one, other, tasks = started(), started(), Gymnasium(environment=source)
    for index in range(2):
        one.submit(Request(group=index, task=tasks[index], sample=0, sampling=StepSampling(max_length=50), seed=0))
    for _ in range(4):
        one.step()
    other.load_state_dict(one.state_dict())
    rest = [[], []]
    for engine, found in zip((one, other), rest, strict=True):
        while engine.in_flight:
            found += [finished.rollout for finished in engine.step()]
    assert len(rest[0]) == 2
    for mine, theirs in zip(*rest, strict=True):
        assert torch.equal(mine.decisions.observation_NSO, theirs.decisions.observation_NSO)
        assert torch.equal(mine.reward_S, theirs.reward_S)


def test_the_world_is_the_one_that_was_saved(tmp_path):
    spec = Dynamics(observations=2, actions=1, hidden=(3, 4), members=3, ends="learned", refine=(0.1, 0.01))
    policy = Planned(world=spec, bound=0.5).load(7)
    policy.save(tmp_path)
    found, bound = world_in(str(tmp_path))
    assert (found.spec, bound) == (spec, 0.5)
    assert all(torch.equal(x, found.state_dict()[name]) for name, x in policy.world.state_dict().items())
    assert not any(x.requires_grad for x in found.parameters())


@pytest.mark.parametrize(
    ("model", "dataset", "sentence"),
    [
        ("model", "gimbal/pendulum/random-v0", r"has 2 observations, 1 real.*random-v0 has 3 observations"),
        ("actor", "data", r"actor holds no world: name the model of a run of world, pets or own_rollouts"),
        ("empty", "data", r"empty holds no config.json; a world must be a directory that a control run saved"),
        ("model", "gimbal/pendulum/rondom-v0", r"no data set gimbal/pendulum/rondom-v0"),
        ("gone", "data", r"there is no directory .*gone, in which a run saved a world"),
    ],
)
def test_what_is_no_world_or_none_of_these_data_is_refused(tmp_path, data, model, dataset, sentence):
    saved(tmp_path / "model")
    (tmp_path / "empty").mkdir()
    (tmp_path / "actor").mkdir()
    Deterministic(observations=2, actions=1, hidden=(4,), bound=2.0).load(0).save(tmp_path / "actor")
    with pytest.raises(ValueError, match=sentence):
        Environment(f"{tmp_path / model}:{data if dataset == 'data' else dataset}")


def test_a_world_in_the_working_directory_needs_no_slash(tmp_path, data, monkeypatch):
    saved(tmp_path / "mine")
    monkeypatch.chdir(tmp_path)
    assert Environment(f"mine:{data}").observations == 2


def test_weights_and_episodes_of_a_world_are_told_apart_from_others(tmp_path, data):
    """A run that goes on in another world is another run."""
    place = saved(tmp_path / "model")
    tasks = Gymnasium(environment=f"{place}:{data}@horizon=5")
    before = tasks.digests()
    assert {Path(path).name for path in before} == {"model", "main_data.hdf5", "metadata.json"}
    saved(place, apart=0.25)
    now = tasks.digests()
    assert [Path(path).name for path in before if before[path] != now[path]] == ["model"]
    assert Gymnasium(environment="Pendulum-v1@g=9.8").digests() == {}


@pytest.mark.parametrize("recipe", ["world", "persist_world"])
def test_a_recipe_learns_a_world_of_recorded_steps_and_another_one_acts_in_it(recipe, tmp_path):
    small = {
        "steps": 2,
        "held_out": None,
        "store.moves": 30,
        "policy.planner.candidates": 2,
        "policy.world.hidden": (8,),
    }
    learns = Trainer(recipes.load(recipe, small))
    learns.begin()
    first, second = (learns.advance()[0]["world/loss"] for _ in range(2))
    assert second < first
    (tmp_path / "model").mkdir()
    learns.learner.policy.save(tmp_path / "model")
    learns.close()
    source = f"{tmp_path / 'model'}:gimbal/pendulum/random-v0"
    few = {
        "steps": 3,
        "store.learning_starts": 10,
        "held_out.tasks.environment": "Pendulum-v1",
        "held_out.tasks.size": 1,
    }
    run = recipes.load("sac", {"tasks.environment": f"{source}@horizon=15", **few})
    assert (run.policy.observations, run.policy.actions, run.policy.bound) == (3, 1, 2.0)
    acts = Trainer(run)
    acts.begin()
    told = [acts.advance()[0] for _ in range(3)]
    assert [one["length/mean"] for one in told] == [10.0, 5.0, 10.0] and "q/loss" in told[-1]
    assert -2000 < acts.evaluate().metrics()["eval/greedy_score"] < 0
    acts.close()


def test_a_diffusion_world_draws_its_steps_and_a_seed_repeats_them_to_the_bit(tmp_path, data):
    spec = DiffusionDynamics(observations=2, actions=1, hidden=(4,), evaluations=3)
    Planned(world=spec, bound=2.0).load(0).save(tmp_path)
    found = []
    for seed in (1, 1, 2):
        world = LearnedWorld(str(tmp_path), data)
        world.reset(seed=seed, options={"begin": (0.0, 0.0)})
        found.append(np.array([world.step(np.ones(1, np.float32))[0] for _ in range(5)]))
    assert np.array_equal(found[0], found[1]) and not np.isclose(found[0], found[2]).any()
