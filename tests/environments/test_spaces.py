"""Which spaces the adapter takes, what it makes of them, and that environments of gymnasium go through it unharmed."""

import importlib
import inspect
import pkgutil

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

import gimbal.environments
from gimbal import recipes
from gimbal.config import Text
from gimbal.environments.gym import Gymnasium, Registered


class Any(gymnasium.Env):
    """Shows and takes whatever is asked for; remembers what it was told."""

    def __init__(self, seen, acts):
        self.observation_space, self.action_space = seen, acts

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.told = action
        return self.observation_space.sample(), 0.0, False, False, {}


class Mission(spaces.Space):
    """A space that a package has made itself, of which gymnasium knows nothing."""

    def __repr__(self):
        return "Mission()"


BOX, CHOICE = spaces.Box(-1, 1, (2,), np.float32), spaces.Discrete(3)
MIXED = spaces.Dict({"place": BOX, "key": spaces.Discrete(4), "map": spaces.Box(0, 1, (2, 3), np.float32)})


@pytest.fixture
def opened():
    def make(seen, acts):
        gymnasium.register("Any-v0", lambda: Any(seen, acts), disable_env_checker=True)
        return Registered(source="Any-v0").open()

    yield make
    gymnasium.registry.pop("Any-v0", None)


@pytest.mark.parametrize(
    ("seen", "count"),
    [
        (BOX, 2),
        (spaces.Discrete(5), 5),
        (spaces.MultiDiscrete([2, 3]), 5),
        (spaces.MultiBinary(4), 4),
        (MIXED, 12),
        (spaces.Tuple([BOX, CHOICE]), 5),
    ],
)
def test_what_is_shown_is_one_vector(opened, seen, count):
    world = opened(seen, CHOICE)
    first = world.reset(Gymnasium()[0], seed=0)
    assert world.observations == count and first.shape == (count,) and first.dtype == np.float32
    seen.seed(Gymnasium()[0].seed)
    expected = spaces.flatten(seen, seen.sample())
    assert np.allclose(first, expected), "the same sample, flattened by gymnasium"


@pytest.mark.parametrize("shape", [(2, 3), (6,), (1, 3)])
def test_a_shape_that_was_not_announced_is_refused_though_its_count_may_be_right(opened, shape, monkeypatch):
    world = opened(spaces.Box(-1, 1, (3, 2), np.float32), CHOICE)
    assert world.reset(Gymnasium()[0], seed=0).shape == (6,)
    monkeypatch.setattr(Any, "reset", lambda self, seed, options=None: (np.zeros(shape, np.float32), {}))
    with pytest.raises(
        ValueError, match=rf"observation of shape \[{', '.join(map(str, shape))}\]; its observation_space is Box"
    ):
        world.reset(Gymnasium()[0], seed=0)


@pytest.mark.parametrize(
    ("acts", "count", "does", "told"),
    [
        (CHOICE, 3, [2], 2),
        (spaces.Discrete(3, start=5), 3, [0], 5),
        (spaces.MultiDiscrete([2, 3]), 6, [5], [1, 2]),
        (spaces.MultiDiscrete([2, 3], start=[10, 20]), 6, [1], [10, 21]),
        (BOX, 2, [0.5, 9.0], [0.5, 1.0]),
        (spaces.Box(-2, 2, (2, 2), np.float32), 4, [0.5, 9.0, 0.0, 1.0], [[0.5, 2.0], [0.0, 1.0]]),
    ],
)
def test_what_is_done_is_what_the_environment_is_told(opened, acts, count, does, told):
    world = opened(BOX, acts)
    world.reset(Gymnasium()[0], seed=0)
    world.step(np.array(does, dtype=np.float32 if isinstance(acts, spaces.Box) else np.int64))
    assert world.actions == count and np.array_equal(world._env.unwrapped.told, told)


@pytest.mark.parametrize(
    ("seen", "acts", "named"),
    [
        (spaces.Sequence(BOX), CHOICE, r"shows Sequence.*Dict or Tuple"),
        (spaces.Text(5), CHOICE, r"shows Text"),
        (Mission(), CHOICE, r"shows Mission\(\); numbers of a fixed count"),
        (spaces.Dict({"map": BOX, "mission": Mission()}), CHOICE, r"shows Mission\(\) as 'mission'; numbers"),
        (spaces.Tuple([BOX, spaces.Dict({"a": Mission()})]), CHOICE, r"shows Mission\(\) as '1/a'; numbers"),
        (BOX, MIXED, r"takes Dict"),
        (BOX, spaces.MultiBinary(3), r"takes MultiBinary"),
        (BOX, spaces.MultiDiscrete([100, 100]), r"at most 1024 combinations"),
    ],
)
def test_other_spaces_are_refused_by_name(opened, seen, acts, named):
    if isinstance(seen, spaces.Text) and seen.is_np_flattenable:
        pytest.skip("this gymnasium makes numbers of texts")
    with pytest.raises(ValueError, match=named):
        opened(seen, acts)


def own():
    """What makes an environment of the package, by the name that a user types: its classes, and the functions that return one."""
    for found in pkgutil.walk_packages(gimbal.environments.__path__, "gimbal.environments."):
        there = vars(importlib.import_module(found.name))
        here = {name: thing for name, thing in there.items() if getattr(thing, "__module__", "") == found.name}
        kinds = {
            name: thing for name, thing in here.items() if inspect.isclass(thing) and issubclass(thing, gymnasium.Env)
        }
        for name, thing in here.items():
            returned = thing.__annotations__.get("return") if inspect.isfunction(thing) else None
            makes = name in kinds or returned in [*kinds, *kinds.values()]  # beartype makes classes of the names
            if makes and all(one.default is not one.empty for one in inspect.signature(thing).parameters.values()):
                yield f"{found.name}:{name}"


OWN = [*own()]
KNOWN = ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCarContinuous-v0"]


def test_all_environments_of_the_package_are_found():
    names = {name.partition(":")[2] for name in OWN}
    assert names >= {"BoundedCart", "CoupledBandit", "Hypergrid", "Merging", "MergingPlans", "PointMaze", "PointReach"}
    assert names >= {"PushedPendulum", "flow", "listed", "lock", "river_swim"} and "Tabular" not in names


@pytest.mark.parametrize("name", [*KNOWN, *OWN])
def test_it_passes_gymnasiums_own_check(name):
    check_env(Registered(source=name).open()._env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("name", [*KNOWN, *OWN])
def test_it_passes_the_check_of_stable_baselines3(name):
    sb3 = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="SB3 is not installed (make test-environments)"
    )
    sb3.check_env(Registered(source=name).open()._env, warn=False)


@pytest.mark.parametrize(
    ("recipe", "name", "sizes"),
    [
        ("sac", "MountainCarContinuous-v0", (2, 1)),
        ("td3", "MountainCarContinuous-v0", (2, 1)),
        ("dqn", "Acrobot-v1", (6, 3)),
    ],
)
def test_sizes_are_those_of_the_environment(recipe, name, sizes):
    run = recipes.load(recipe, {"environment": Text(name)})
    assert (run.policy.observations, run.policy.actions) == sizes
    assert run.held_out.tasks.environment == name
    if recipe != "dqn":
        critic = run.learns.critic
        assert (critic.observations, critic.actions, critic.bound, run.policy.bound) == (*sizes, 1.0, 1.0)


def test_a_recipe_of_the_other_kind_is_refused_with_the_one_that_fits():
    with pytest.raises(
        ValueError, match="takes discrete actions, which SquashedGaussian does not sample: start from dqn or cartpole"
    ):
        recipes.load("sac", {"environment": Text("CartPole-v1")})
    with pytest.raises(ValueError, match="continuous actions, which Greedy does not sample: start from sac, td3"):
        recipes.load("dqn", {"environment": Text("Pendulum-v1")})
