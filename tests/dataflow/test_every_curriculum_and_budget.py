"""What every curriculum and every budget must do, whatever it is: the harness walks the packages and finds them."""

import importlib
import inspect
import math
import pickle
import pkgutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from watched import World, group, spent

import gimbal.dataflow.budgets
import gimbal.dataflow.curricula
from gimbal.composition import GROWS
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, AbstractCurriculumSpec, Plan, Progress
from gimbal.dataflow.curricula.epochs import Epochs, EpochsCurriculum
from gimbal.environments.base import AbstractTasks
from gimbal.environments.dataset import Rows

ORDERED = {  # go by the order in which groups arrive, and say so
    "Allocated": "its context is the last 256 groups as they came",
    "Hinted": "what failed is asked again in the order in which it failed",
    "SolvedShare": "it moves after every 16 groups, whichever they are",
}
TASKS = Rows(rows=[{"prompt": f"{n}"} for n in range(24)])


class Nothing(AbstractTasks):
    def __len__(self):
        return 0

    def __getitem__(self, index):
        raise IndexError(index)


def found(package, kind):
    specs = {}
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        for name, thing in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(thing) and issubclass(thing, kind) and not name.startswith("Abstract"):
                specs[name] = thing()
    return [specs[name] for name in sorted(specs)]


CURRICULA = found(gimbal.dataflow.curricula, AbstractCurriculumSpec)
BUDGETS = found(gimbal.dataflow.budgets, AbstractBudgetSpec)
OVER = [spec for spec in CURRICULA if "order" in vars(spec)]


def name(spec):
    return type(spec).__name__


def chance(task):
    """From never to always."""
    return int(task.prompt) / 23


def curriculum(spec, **options):
    return World(spec.start(TASKS, 7), options.pop("chance", chance), **options)


each = pytest.mark.parametrize("spec", CURRICULA, ids=name)
each_budget = pytest.mark.parametrize("spec", BUDGETS, ids=name)


def test_they_are_found():
    assert len(CURRICULA) >= 12 and len(BUDGETS) >= 6 and ORDERED.keys() <= {name(spec) for spec in CURRICULA}


@each
def test_a_curriculum_is_the_same_again_and_goes_on_where_it_was(spec):
    whole, again = curriculum(spec), curriculum(spec)
    assert whole.steps(9) == again.steps(9)
    assert whole.live.state_dict() == again.live.state_dict()
    assert whole.live.metrics() == again.live.metrics()
    later = curriculum(spec)
    later.live.load_state_dict(pickle.loads(pickle.dumps(again.live.state_dict())))
    later.version = again.version
    assert later.steps(9) == whole.steps(9)
    assert later.live.state_dict() == whole.live.state_dict()


@each
def test_a_curriculum_goes_on_in_the_middle_of_a_step(spec):
    """Some of what it gave out has been observed, some has not."""
    whole = curriculum(spec)
    whole.steps(5)
    tasks = [whole.live.next() for _ in range(4)]
    whole.live.observe(group(tasks[2], [1, 0, 1, 1]))
    other = spec.start(TASKS, 7)
    other.load_state_dict(pickle.loads(pickle.dumps(whole.live.state_dict())))
    assert [other.next() for _ in range(6)] == [whole.live.next() for _ in range(6)]


@each
def test_another_seed_is_another_order(spec):
    one, other = (World(spec.start(TASKS, seed), chance) for seed in (0, 1))
    assert one.steps(12) != other.steps(12)


@each
def test_groups_may_arrive_in_any_order(spec):
    if name(spec) in ORDERED:
        pytest.skip(ORDERED[name(spec)])
    straight, turned = curriculum(spec), curriculum(spec, order=lambda groups: groups[::-1])
    assert straight.steps(12) == turned.steps(12)
    assert straight.live.state_dict() == turned.live.state_dict()
    assert straight.live.metrics() == turned.live.metrics()


@each
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_outcomes_that_are_all_alike_are_borne(spec, share):
    world = curriculum(spec, chance=lambda task: share)
    world.steps(12)
    assert all(math.isfinite(value) for value in world.live.metrics().values())
    assert len({task for step in world.given for task in step}) == 24, (
        "each is asked, for nobody knows it to be hopeless"
    )


@each
def test_where_nothing_arrives_it_goes_on(spec):
    """Every group is lost."""
    world = curriculum(spec, order=lambda groups: [])
    world.steps(15)
    assert all(math.isfinite(value) for value in world.live.metrics().values())


@each
def test_no_tasks_are_refused_and_one_is_enough(spec):
    with pytest.raises(ValueError, match="there are no tasks"):
        spec.start(Nothing(), 0)
    alone = Rows(rows=[{"prompt": "5"}])
    world = World(spec.start(alone, 0), chance)
    assert {task.partition("#")[0] for step in world.steps(5) for task in step} == {alone[0].id}


@each
def test_figures_stand_under_its_name(spec):
    world = curriculum(spec)
    world.steps(3)
    names = {key.split("/")[0] for key in world.live.metrics()}
    assert names <= {name(spec)}


@pytest.mark.parametrize("spec", OVER, ids=name)
def test_what_is_around_another_passes_on_what_it_is_told(spec):
    told = []

    class Order(EpochsCurriculum):
        def step(self, progress):
            told.append(progress.version)

        def metrics(self):
            return {"Order/told": float(len(told))}

    live = spec.start(TASKS, 0)
    live.order = Order(Epochs(), TASKS, 0)
    live.step(Progress(version=3, drawn=0))
    live.observe(group(live.next(), [1, 0]))
    assert told == [3] and live.metrics()["Order/told"] == 1


def run(budget, steps=4, order=lambda groups: groups, answer=chance, first=0):
    """The sizes of the groups of each step."""
    sizes = []
    for version in range(first, first + steps):
        budget.step(Progress(version=version, drawn=500 * version))
        groups = spent(budget, [TASKS[n] for n in range(version % 2, 24, 4)], answer)
        for one in order(groups):
            budget.observe(one)
        sizes.append([len(one.episodes) for one in groups])
    return sizes


@each_budget
def test_a_budget_is_the_same_again_and_goes_on_where_it_was(spec):
    whole, again = spec.start(8, 64), spec.start(8, 64)
    assert run(whole) == run(again) and whole.state_dict() == again.state_dict()
    later = spec.start(8, 64)
    later.load_state_dict(pickle.loads(pickle.dumps(again.state_dict())))
    assert run(later, first=4) == run(whole, first=4)
    assert later.state_dict() == whole.state_dict() and later.metrics() == whole.metrics()


@each_budget
def test_a_budget_does_not_care_in_which_order_groups_arrive(spec):
    straight, turned = spec.start(8, 64), spec.start(8, 64)
    assert run(straight) == run(turned, order=lambda groups: groups[::-1])
    assert straight.state_dict() == turned.state_dict()


@each_budget
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_budget_bears_outcomes_that_are_all_alike(spec, share):
    budget = spec.start(8, 64)
    sizes = run(budget, answer=lambda task: share)
    assert all(1 <= size <= 64 for step in sizes for size in step)
    assert all(math.isfinite(value) for value in budget.metrics().values())


@each_budget
def test_a_budget_plans_every_round(spec):
    budget = spec.start(8, 64)
    for size in (1, 2, 16):
        plans = budget.plan([TASKS[n] for n in range(size)])
        assert len(plans) == size and all(isinstance(plan, Plan) and plan.max_length == 64 for plan in plans)
    assert list(budget.more([])) == []


@each_budget
def test_a_budget_that_draws_more_says_so(spec):
    grows = type(spec.start(8, 64)).more is not AbstractBudget.more
    assert grows == (GROWS in spec.effects())
