"""Roles that overlap on the virtual clock, against schedules computed by hand, and what bounds every one of them."""

from dataclasses import replace

import pytest

from gimbal.runtime.simulate.crew import CrewSetup, RolePlan, balanced, simulate_crew
from gimbal.runtime.simulate.timing import LogNormal, RecordedLengths, Speeds

SPEEDS = Speeds(step_s=1.0, train_token_s=0.1, train_step_s=1.0, sync_s=0.5, load_s=2.0)
ORDERS = ("synchronous", "micro-batch", "autonomous")


def role(length, **changes):
    """One call after the other, each of so many seconds."""
    return RolePlan(speeds=SPEEDS, lengths=RecordedLengths(groups=((length,) * 4,)), slots=1, prompt=0, **changes)


PLAN = CrewSetup(
    roles={"planner": role(4), "executor": role(10, calls=2)},
    turns=("planner", "executor"),
    episodes=3,
    micro_batch=1,
    warmup=1,
    steps=3,
)
DRAWN = replace(
    PLAN,
    roles={
        name: RolePlan(speeds=replace(SPEEDS, step_s=0.1), lengths=LogNormal(mean=mean, cv=1.0), calls=2, slots=3)
        for name, mean in (("planner", 20.0), ("executor", 60.0))
    },
    turns=("planner", "executor", "planner"),
    episodes=6,
    micro_batch=2,
)


def test_synchronous_by_hand():
    """The planner ends at 4, 8 and 12; the executor, two calls an episode, at 24, 44 and 64. Then 60 decisions train for 6 + 1.5 s; the
    planner has loaded long before that, and the executor while the planner speaks."""
    found = simulate_crew(PLAN, "synchronous")
    assert found.step_s == pytest.approx(64 + 7.5)
    assert found.trainer_idle == {"planner": pytest.approx(1 - 2.7 / 71.5), "executor": pytest.approx(1 - 7.5 / 71.5)}
    assert found.sampling == {"planner": pytest.approx(12), "executor": pytest.approx(60)}
    assert found.sampler_idle["executor"] == pytest.approx(1 - 62 / 71.5) and (found.age_mean, found.age_max) == (0, 0)


def test_micro_batches_by_hand():
    """Two thirds of the executor's gradient are there at 46. The last third takes 2 + 1.5 s, to 67.5. The planner trains to 65.9, loads
    to 67.9 and has spoken at 71.9; the executor has loaded by then. It began at 4, so a step takes 67.9."""
    found = simulate_crew(PLAN, "micro-batch")
    assert found.step_s == pytest.approx(67.9) and found.age_max == 0
    assert found.trainer_idle["executor"] == pytest.approx(1 - 7.5 / 67.9), "the work is that of the whole batch"


def test_autonomous_by_hand():
    """The executor never waits: 60 s of calls and a load."""
    found = simulate_crew(PLAN, "autonomous")
    assert found.step_s == pytest.approx(62) and found.sampler_idle["executor"] == pytest.approx(0)
    assert 0 < found.age_mean < 1 and found.age_max == 1


@pytest.mark.parametrize("plan", [PLAN, DRAWN])
def test_autonomous_with_k_0_is_synchronous(plan):
    assert simulate_crew(replace(plan, max_staleness=0), "autonomous") == simulate_crew(plan, "synchronous")


@pytest.mark.parametrize("length", [RecordedLengths(groups=((7,) * 4,)), LogNormal(mean=30.0)])
def test_one_role_in_one_micro_batch_is_synchronous(length):
    plan = replace(PLAN, roles={"solver": replace(role(1), lengths=length)}, turns=("solver",), micro_batch=3)
    assert simulate_crew(plan, "micro-batch") == simulate_crew(plan, "synchronous")


@pytest.mark.parametrize("seed", range(5))
def test_overlap_never_costs_time_and_only_autonomous_data_age(seed):
    plan = replace(DRAWN, seed=seed)
    found = {order: simulate_crew(plan, order) for order in ORDERS}
    assert found["autonomous"].step_s < found["micro-batch"].step_s < found["synchronous"].step_s
    assert found["micro-batch"].age_max == found["synchronous"].age_max == 0 < found["autonomous"].age_max
    work = [one.sampling["executor"] for one in found.values() if one.age_max == 0]
    assert len({simulate_crew(plan, order).step_s for order in ORDERS for _ in range(2)}) == 3 and len(work) == 2
    for one in found.values():
        shares = [*one.sampler_idle.values(), *one.trainer_idle.values()]
        assert all(0 <= share <= 1 for share in shares)


def test_calls_are_as_long_as_they_are_drawn():
    plan = replace(PLAN, roles={"planner": role(4), "executor": role(1000, calls=2)})
    assert simulate_crew(plan, "synchronous").sampling["executor"] == pytest.approx(6000)


def test_samplers_go_where_the_calls_are():
    """Loads of 12 and 60 seconds, one each, and the other four in shares of .67 and 3.33."""
    skewed = replace(PLAN, roles={"planner": role(4, samplers=5), "executor": role(10, calls=2)})
    even = balanced(skewed, "synchronous")
    assert {name: plan.samplers for name, plan in even.roles.items()} == {"planner": 2, "executor": 4}
    assert simulate_crew(even, "synchronous").step_s < 0.5 * simulate_crew(skewed, "synchronous").step_s
    assert balanced(PLAN, "synchronous") == PLAN  # nothing to move


def test_a_crew_that_cannot_be_is_refused():
    for wrong, said in (
        ({"turns": ("planner",)}, "each role must have a turn"),
        ({"turns": ("planner", "executor", "judge")}, "each role must have a turn"),
        ({"turns": (), "roles": {}}, "turns of nobody"),
        ({"episodes": 0}, "episodes is 0"),
        ({"micro_batch": 0}, "micro_batch is 0"),
        ({"steps": 0}, "steps is 0"),
        ({"warmup": -1}, "warmup is -1"),
        ({"max_staleness": -1}, "max_staleness is -1"),
    ):
        with pytest.raises(ValueError, match=said):
            replace(PLAN, **wrong)
    for wrong in ({"calls": 0}, {"samplers": 0}, {"slots": 0}, {"trainers": 0}, {"prompt": -1}):
        with pytest.raises(ValueError, match=f"RolePlan.{next(iter(wrong))} is"):
            RolePlan(**wrong)
