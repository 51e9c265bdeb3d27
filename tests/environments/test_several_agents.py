"""Environments of several agents that act at once: each a row of its own, or all together."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
import several_agents

from gimbal import recipes
from gimbal.config.parts import Text
from gimbal.environments.apart import Apart
from gimbal.environments.conformance import Conformance
from gimbal.environments.gym import Environment, Gymnasium, Registered, goals_of, opened
from gimbal.records import Task

OWN = several_agents.__file__
SPREAD = "mpe2.simple_spread_v3"


def live(name):
    return Registered(source=f"{OWN}:{name}").open()


def begun(source, seed=3):
    environment = Registered(source=source).open()
    return environment, environment.reset(Task(id="x", source=source, seed=seed), 0)


def test_each_agent_is_answered_for_itself_and_those_that_have_ended_are_left_alone():
    world = live("Walks")
    assert (world.agents, world.interface) == (3, "3 observations, 4 choices")
    seen = world.reset(Task(id="x"), 0)
    assert seen.tolist() == [[0, 0, -1], [1, 0, -1], [2, 0, -1]]
    moments = [world.step(np.array([[t], [t + 1], [t - 1]]) % 4) for t in range(1, 5)]
    assert [[None if one is None else one.reward for one in moment.each] for moment in moments] == [
        [1, 11, 21],
        [2, 12, 22],
        [None, 13, 23],
        [None, 14, None],
    ]
    assert [moment.reward for moment in moments] == [33, 36, 36, 14] and [m.cost for m in moments] == [3, 3, 2, 1]
    assert moments[1].observation.tolist() == [[0, 2, 2], [1, 2, 3], [2, 2, 1]]
    assert moments[3].observation.tolist() == [[0, 0, 0], [1, 4, 1], [0, 0, 0]]  # of those that have ended: nothing
    flags = [[(one.terminated, one.truncated) for one in moment.each if one is not None] for moment in moments]
    assert flags[1:] == [
        [(True, False), (False, False), (False, False)],
        [(False, False), (True, False)],
        [(False, True)],
    ]
    assert [(m.terminated, m.truncated) for m in moments] == [(False, False)] * 3 + [(False, True)]
    assert [m.success for m in moments] == [False, False, False, True]  # where each one that acts says so


def test_kinds_are_told_apart_and_what_is_shorter_is_filled_up():
    world = live("Hunt")
    assert (world.interface, world.bound, world.real) == ("6 observations, 2 real actions", 1.0, True)
    seen = world.reset(Task(id="x"), 0)
    assert seen.tolist() == [[0, 0, -1, 0, 1, 0], [1, 0, -1, 0, 1, 0], [2, 0, -1, 7, 0, 1]]
    moment = world.step(np.array([[0.5, 0.25], [2.0, 0.0], [0.5, 9.0]], np.float32))
    assert moment.observation[:, 2].tolist() == [0.75, 1.0, 0.5]  # clipped, and the hare's second number is not read


def test_one_agent_is_what_a_gymnasium_environment_would_be():
    world = live("One")
    assert world.agents == 1 and world.interface == "3 observations, 4 choices"
    world.reset(Task(id="x"), 0)
    moments = [world.step(np.array([[2]])) for _ in range(3)]
    assert [m.reward for m in moments] == [1, 2, 3] and [m.terminated for m in moments] == [False, False, True]


def test_together_they_are_one_environment_that_earns_what_all_earn():
    world = Registered(source=f"{OWN}:Walks@together=1").open()
    assert isinstance(world, Environment) and world.interface == "9 observations, 64 choices" and not world.agents
    apart = live("Walks")
    task = Task(id="x")
    assert world.reset(task, 0).tolist() == apart.reset(task, 0).reshape(-1).tolist()
    for t in range(4):
        each = np.array([t, 3 - t, 2])
        one, all_ = world.step(np.array([each @ [16, 4, 1]])), apart.step(each[:, None])
        assert one.observation.tolist() == all_.observation.reshape(-1).tolist()
        assert (one.reward, one.terminated, one.truncated, one.success, one.cost) == (
            all_.reward,
            all_.terminated,
            all_.truncated,
            all_.success,
            all_.cost,
        )
    hunt = Registered(source=f"{OWN}:Hunt@together=1").open()
    assert hunt.interface == "18 observations, 5 real actions"
    hunt.reset(task, 0)
    assert hunt.step(np.array([0.5, 0.25, -0.5, 0, 0.75], np.float32)).observation[[2, 8, 14]].tolist() == [
        0.75,
        -0.5,
        0.75,
    ]
    chosen = Registered(source=f"{OWN}:Choosers@together=1").open()  # choices of different numbers, from 1 on
    chosen.reset(task, 0)
    assert chosen.interface == "9 observations, 75 choices"
    assert chosen.step(np.array([74])).observation[[2, 5, 8]].tolist() == [3, 5, 5]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Choosers", r"different choices \(walker_0: 3 choices, walker_1: 5 choices.*set together=1 behind its @"),
        ("Walks@m=2", r"raises TypeError"),
        ("Walks@together=2", r"Walks sets together=2; it is 1 \(one decision of all agents\) or 0"),
        ("Walks@together=-1", r"sets together=-1; it is 1"),
        ("Numbered", r"has possible_agents=\[0, 1\]; the names of its agents are wanted, as different texts"),
        ("Nameless", r"has possible_agents=\[\]; the names"),
    ],
)
def test_what_one_policy_cannot_share_is_refused_with_the_way_out(name, said):
    with pytest.raises(ValueError, match=said):
        live(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Joins", r"step let walker_2 join; only agents that are there from the reset on"),
        ("Silent", r"step returned none of walker_1 as rewards; a dict is wanted"),
    ],
)
def test_an_environment_that_breaks_the_convention_is_named(name, said):
    world = live(name)
    world.reset(Task(id="x"), 0)
    with pytest.raises(ValueError, match=said):
        world.step(np.zeros((3, 1), int))


def test_a_reset_without_an_agent_is_told():
    with pytest.raises(ValueError, match="reset begins without an agent; at least one"):
        live("Nobody").reset(Task(id="x"), 0)


def test_an_agent_that_has_ended_may_still_be_named():
    world, plain = live("Lingers"), live("Walks")
    for one in (world, plain):
        one.reset(Task(id="x"), 0)
    for _ in range(4):
        lingering, ended = (one.step(np.zeros((3, 1), int)) for one in (world, plain))
        assert [one and one.reward for one in lingering.each] == [one and one.reward for one in ended.each]
    assert lingering.ended and ended.ended


@pytest.mark.parametrize("use", [opened, Environment, goals_of])
def test_where_one_decision_is_taken_for_all_that_has_to_be_said(use):
    with pytest.raises(ValueError, match=r"is of several agents.*together=1 behind its @"):
        use(f"{OWN}:Walks")


def test_modules_of_pettingzoo_are_named_as_they_are_imported():
    pytest.importorskip("mpe2", reason="mpe2 is not installed (pip install -e '.[pettingzoo]')")
    from mpe2 import simple_spread_v3

    world, seen = begun(f"{SPREAD}@N=2,max_cycles=7")
    theirs = simple_spread_v3.parallel_env(N=2, max_cycles=7)
    first, _ = theirs.reset(seed=3)
    assert seen.tolist() == [first[name].tolist() for name in theirs.possible_agents]
    for t in range(7):
        moment = world.step(np.array([[t % 5], [3]]))
        there, rewards, _, cut, _ = theirs.step({"agent_0": t % 5, "agent_1": 3})
        assert [one.reward for one in moment.each] == [rewards[name] for name in rewards]
        assert moment.observation.tolist() == [there[name].tolist() for name in there]
        assert moment.truncated == all(cut.values()) and not moment.terminated
    assert moment.truncated
    assert begun(f"{SPREAD}@continuous_actions=1")[0].interface == "18 observations, 5 real actions"
    assert begun("mpe2.simple_tag_v3")[0].interface == "18 observations, 5 choices"  # 16 and 14 numbers, and two kinds
    drawn = Environment(f"{SPREAD}@together=1", drawn=True)
    drawn.reset(Task(id="x", seed=3), 0)
    assert drawn.image().shape == (700, 700, 3)
    with pytest.raises(ValueError, match="different choices"):
        begun("mpe2.simple_speaker_listener_v4")
    with pytest.raises(ValueError, match="unexpected keyword argument 'm'"):
        begun(f"{SPREAD}@m=2")
    with pytest.raises(ValueError, match="has no parallel_env"):
        begun("mpe2.all_modules")


@pytest.mark.parametrize(
    ("recipe", "name", "sizes"), [("cartpole", SPREAD, (18, 5)), ("dqn", f"{SPREAD}@together=1", (54, 125))]
)
def test_recipes_take_their_sizes_from_it(recipe, name, sizes):
    pytest.importorskip("mpe2", reason="mpe2 is not installed (pip install -e '.[pettingzoo]')")
    run = recipes.load(recipe, {"environment": Text(name)})
    assert (run.policy.observations, run.policy.actions) == sizes and run.held_out.tasks.environment == name
    assert Gymnasium(environment=name)[0].source == name


@pytest.mark.parametrize(("name", "earned"), [("Walks", 119.0), ("Hunt", 108.0), ("Walks@together=1", 119.0)])
def test_it_does_the_same_again_and_in_a_copy(name, earned):
    spec = Registered(source=f"{OWN}:{name}")
    world = spec.open()
    acts = np.ones((world.agents, world.actions if world.real else 1), np.float32) if world.agents else np.ones(1)
    policies = {"oracle": lambda task, seen: acts, "null": lambda task, seen: 0 * acts}
    Conformance(spec=spec, tasks=[Task(id="x", seed=5)], best=earned, worst=earned, **policies).check()


def test_in_a_process_of_its_own_all_are_one_agent():
    """A row of each agent is for the run's own process."""
    apart = Apart(f"{OWN}:Walks")
    with pytest.raises(ValueError, match=r"is of several agents.*together=1 behind its @"):
        Environment(f"{OWN}:Walks", apart=apart)
    name = f"{OWN}:Walks@together=1"
    here, there = Environment(name), Environment(name, apart=Apart(name))
    try:
        assert here.interface == there.interface
        assert here.reset(Task(id="x", seed=3), 0).tolist() == there.reset(Task(id="x", seed=3), 0).tolist()
        one, other = (world.step(np.array([5])) for world in (here, there))
        assert (one.observation.tolist(), one.reward) == (other.observation.tolist(), other.reward)
    finally:
        there.close()
