"""Which tasks come next by what their outcomes were: the equations, the limiting cases, and that each does what it is for."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from watched import World, group

from gimbal.dataflow.base import Progress
from gimbal.dataflow.curricula.banded import Banded
from gimbal.dataflow.curricula.choosing import LAPSE, gumbel
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.curricula.frontier import Frontier
from gimbal.dataflow.curricula.retiring import Retiring
from gimbal.dataflow.curricula.skipping import Skipping
from gimbal.dataflow.curricula.state_predicted import Chain, StatePredicted
from gimbal.dataflow.curricula.variance_sampled import VarianceSampled
from gimbal.dataflow.success import SuccessModel, kind
from gimbal.environments.dataset import Rows
from gimbal.ops import philox

TASKS = Rows(rows=[{"prompt": f"{n}"} for n in range(40)])
HARD, EVEN, EASY = range(20), range(20, 30), range(30, 40)


def chance(task):
    place = int(task.prompt)
    return 0.0 if place in HARD else 0.5 if place in EVEN else 1.0


def share_of_mixed(spec, steps=40, late=10):
    """Of what is given out in the last steps, those that can be solved in part: one in four of all."""
    world = World(spec.start(TASKS, 3), chance)
    world.steps(steps - late)
    even = {TASKS[n].id for n in EVEN}
    given = [task for step in world.steps(late) for task in step]
    return sum(task in even for task in given) / len(given)


# The model


def test_the_model_by_hand_and_its_limits():
    model = SuccessModel(prior=1.0, fade=0.5, fresh=0.25)
    model.visit("t", np.array([1.0, 1.0, 0.0]))
    assert model.counts(["t", None, "new"]).tolist() == [[3.0, 2.0], [1.0, 1.0], [1.0, 1.0]]
    model.step()
    assert model.counts(["t"]).tolist() == [[2.0, 1.5]]
    model.visit("t", np.array([0.0]))
    assert model.counts(["t"]).tolist() == [[1 + 0.25 * 1.0, 1 + 0.25 * 0.5 + 1]]
    keeps, last = SuccessModel(prior=1.0, fade=1.0, fresh=1.0), SuccessModel(prior=1.0, fade=1.0, fresh=0.0)
    for outcome in (1.0, 1.0, 0.0):
        keeps.visit("t", np.array([outcome]))
        last.visit("t", np.array([outcome]))
        keeps.step()
    assert keeps.counts(["t"]).tolist() == [[3.0, 2.0]] and last.counts(["t"]).tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match="shares from 0 to 1"):
        SuccessModel(prior=1.0, fade=1.1, fresh=1.0)


def test_kinds():
    assert [kind(np.array(x)) for x in ([0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.5], [0.6, 0.6])] == [
        "failed",
        "mixed",
        "solved",
        "failed",
        "solved",
    ]


# VADE


def test_variance_is_what_is_looked_for():
    assert share_of_mixed(VarianceSampled()) > 0.5
    assert share_of_mixed(Frontier(alpha=0.0, beta=0.0)) < 0.4


def test_the_score_is_the_variance_of_a_chance_that_is_drawn():
    live = VarianceSampled(fresh=1.0).start(TASKS, 0)
    for _ in range(50):
        live.learn(group(TASKS[0], [1, 1, 1, 1]))
    scores = np.array([live.score([TASKS[0].id, None], philox(n)) for n in range(400)])
    assert (scores <= 0.25).all() and scores[:, 0].max() < 0.2
    assert scores[:, 1].mean() == pytest.approx(1 / 6, abs=0.01), "E p (1 - p) of Beta(1, 1)"


def drifting(spec):
    """Ten tasks are even chances for 40 steps; then these are solved, and ten others have become even. How soon are those found?"""
    world = World(spec.start(TASKS, 1), lambda task: 0.5 * (int(task.prompt) < 10))
    world.steps(40)
    world.chance = lambda task: 1.0 if int(task.prompt) < 10 else 0.5 * (int(task.prompt) < 20)
    good = {TASKS[n].id for n in range(10, 20)}
    given = [task for step in world.steps(15) for task in step]
    return sum(task in good for task in given) / len(given)


def test_forgetting_helps_where_the_policy_moves():
    forgets = VarianceSampled(fade=0.95, fresh=0.5)
    assert drifting(forgets) > drifting(VarianceSampled(fade=1.0, fresh=1.0)) + 0.1


# Choosers


def test_what_is_out_is_not_given_again_until_it_came_or_was_lost():
    live = StatePredicted().start(TASKS, 0)
    live.step(Progress(version=0, drawn=0))
    ids = [live.next().id for _ in range(40)]
    assert len(set(ids)) == 40, "nothing is observed in between"
    live.observe(group(next(t for t in map(TASKS.__getitem__, range(40)) if t.id == ids[7]), [1, 0]))
    assert live.next().id == ids[7]
    for version in range(1, LAPSE):
        live.step(Progress(version=version, drawn=0))
    assert len(live.out) == 40
    live.step(Progress(version=LAPSE, drawn=0))
    assert not live.out


@pytest.mark.parametrize("spec", [VarianceSampled(), Frontier(), StatePredicted(), Banded(), Frontier(pool=12)])
def test_where_filters_ask_for_more_each_task_comes_once_a_step(spec):
    """A group that a filter drops is observed, and its place is filled: by another task, as long as there is one; resumed or not."""
    live = spec.start(TASKS, 0)
    for version in range(3):
        live.step(Progress(version=version, drawn=0))
        given = []
        for count in range(spec.pool or 40):
            if count == 5:
                state, live = live.state_dict(), spec.start(TASKS, 0)
                live.load_state_dict(state)
            task = live.next()
            given.append(task.id)
            live.observe(group(task, [1, 0]))
        assert len(set(given)) == len(given)
        again = live.next()
        assert again.id in given, "none is left"
        live.observe(group(again, [1, 0]))


def test_a_pool_is_drawn_anew_in_each_step():
    live = VarianceSampled(pool=6).start(TASKS, 0)
    pools = []
    for version in range(30):
        live.step(Progress(version=version, drawn=0))
        pools.append(tuple(live.candidates))
        assert int(live.next().prompt) in live.candidates
    assert len(set(pools)) == 30 and all(len(set(pool)) == 6 for pool in pools)
    assert len({place for pool in pools for place in pool}) == 40
    with pytest.raises(ValueError, match=r"curriculum\.pool=4096"):
        VarianceSampled().start(Many(rows=[{"prompt": "x"}]), 0)


class Many(Rows):
    def __len__(self):
        return 100_001


def test_a_task_that_comes_again_says_so():
    live = VarianceSampled().start(Rows(rows=[{"prompt": "x"}]), 0)
    assert [live.next().columns.get("visit", 0) for _ in range(3)] == [0, 1, 2]
    twice = Epochs().start(Rows(rows=[{"prompt": "x"}]), 0)
    assert [twice.next().columns.get("visit", 0) for _ in range(3)] == [0, 1, 2]


def test_the_highest_of_noisy_logarithms_are_a_draw_by_the_weights():
    weight = np.array([1.0, 2.0, 5.0, 0.0])
    first = np.bincount([gumbel(philox(n), weight).argmax() for n in range(4000)], minlength=4) / 4000
    assert first == pytest.approx(weight / 8, abs=0.03)


# DPS


def by_hand(states, prior=1.0, forget=0.5):
    """The card's update, written out with sums; None is a step without an observation."""
    alpha = [[prior] * 3 for _ in range(3)]
    mu = pi = [1 / 3] * 3
    for state in states:
        column = [sum(alpha[k][j] for k in range(3)) for j in range(3)]
        joint = [[0.0] * 3 for _ in range(3)]
        if state is not None:
            for j in range(3):
                joint[state][j] = mu[j] * alpha[state][j] / column[j]
            total = sum(map(sum, joint))
            joint = [[x / total for x in row] for row in joint]
        alpha = [[forget * alpha[k][j] + (1 - forget) * prior + joint[k][j] for j in range(3)] for k in range(3)]
        column = [sum(alpha[k][j] for k in range(3)) for j in range(3)]
        now = pi if state is None else [float(k == state) for k in range(3)]
        mu = now
        pi = [sum(alpha[k][j] / column[j] * now[j] for j in range(3)) for k in range(3)]
    return pi


@pytest.mark.parametrize("states", [[0], [1, 1], [2, 2, None, None, 1], [0, None, 2], [None, None]])
@pytest.mark.parametrize("forget", [0.5, 1.0])
def test_states_are_predicted_as_the_card_says(states, forget):
    spec = StatePredicted(forget=forget)
    chain = Chain.begun(1.0)
    for state in states:
        chain = chain.unseen(spec) if state is None else chain.seen(np.eye(3)[state], spec)
    assert chain.pi.tolist() == pytest.approx(by_hand(states, forget=forget))
    assert chain.pi.sum() == pytest.approx(1.0)


def test_a_prediction_without_evidence_goes_back_to_uniform_and_a_heavy_prior_never_leaves_it():
    spec = StatePredicted()
    chain = Chain.begun(1.0)
    for _ in range(5):
        chain = chain.seen(np.eye(3)[2], spec)
    assert chain.pi[2] > 0.5
    for _ in range(60):
        chain = chain.unseen(spec)
    assert chain.pi == pytest.approx(np.full(3, 1 / 3), abs=1e-6)
    heavy = Chain.begun(1e9).seen(np.eye(3)[0], replace(spec, prior=1e9))
    assert heavy.pi == pytest.approx(np.full(3, 1 / 3), abs=1e-6)


def test_what_is_solved_in_part_is_predicted_and_the_steps_of_the_curriculum_are_those_of_the_chain():
    assert share_of_mixed(StatePredicted(forget=0.9)) > 0.6
    live = StatePredicted().start(TASKS, 0)
    for version, state in enumerate([2, None, None, 1]):
        live.step(Progress(version=version, drawn=0))
        if state is not None:
            live.observe(group(TASKS[0], {1: [0, 1], 2: [1, 1]}[state]))
    assert live.chains[TASKS[0].id].pi.tolist() == pytest.approx(by_hand([2, None, None, 1]))


# GRESO


def test_a_streak_is_skipped_with_the_chance_that_it_deserves():
    live = Skipping(rate=0.0).start(TASKS, 0)
    task = TASKS[0]
    chances = []
    for rewards in ([0, 0], [0, 0], [1, 1], [1, 1], [1, 1], [1, 1], [1, 0]):
        live.observe(group(task, rewards))
        chances.append(live.chance(task))
    # Hard: 1/2, then 1/4 below its floor of 0.4. The other kind begins again: 1/2 ... 1/16 below 0.1. Mixed: asked.
    assert chances == [0.5, 0.4, 0.5, 0.25, 0.125, 0.1, 1.0]


def test_the_base_chances_move_once_an_epoch_is_over():
    live = Skipping().start(TASKS, 0)
    live.observe(group(TASKS[0], [1, 1]))
    live.step(Progress(version=1, drawn=0))
    assert live.chances == {"solved": 0.5, "failed": 0.5}, "the first epoch"
    live.met = 41
    live.observe(group(TASKS[0], [1, 1]))
    live.observe(group(TASKS[1], [1, 0]))
    live.step(Progress(version=2, drawn=0))
    assert live.chances == {"solved": 0.49, "failed": 0.51}
    live.step(Progress(version=3, drawn=0))
    assert live.chances == {"solved": 0.49, "failed": 0.51}, "nothing was seen"


def test_hopeless_tasks_are_asked_less():
    assert share_of_mixed(Skipping()) > 1.4 * share_of_mixed(Skipping(base=1.0, rate=0.0))
    plain, never = World(Epochs().start(TASKS, 3), chance), World(Skipping(base=1.0, rate=0.0).start(TASKS, 3), chance)
    assert plain.steps(30) == never.steps(30)


def test_skips_come_at_the_rate_of_their_chance():
    live = Skipping(order=Epochs(shuffle=False), hard_floor=0.0, rate=0.0, base=0.3).start(TASKS, 5)
    for n in range(40):
        live.observe(group(TASKS[n], [0, 0]))
    for _ in range(3000):
        live.next()
    assert live.asked / live.met == pytest.approx(0.3, abs=0.02)


# PACED's kernel, bands


@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (2.0, 1.0), (0.0, 0.0)])
def test_tasks_come_by_the_kernel_of_their_pass_rate(alpha, beta):
    tasks = Rows(rows=[{"prompt": f"{n}"} for n in range(3)])
    live = Frontier(alpha=alpha, beta=beta, fade=1.0, fresh=1.0).start(tasks, 0)
    for n, rewards in enumerate(([1, 0, 0, 0] * 5, [1, 0] * 10, [1, 1, 1, 0] * 5)):
        live.learn(group(tasks[n], rewards))
    ids = [tasks[n].id for n in range(3)]
    p = np.array([6 / 22, 11 / 22, 16 / 22])
    assert live.model.chance(ids) == pytest.approx(p)
    weight = p**alpha * (1 - p) ** beta
    drawn = np.bincount([live.score(ids, philox(n)).argmax() for n in range(4000)], minlength=3) / 4000
    assert drawn == pytest.approx(weight / weight.sum(), abs=0.03)


def test_each_band_has_its_share():
    live = Banded(shares=(0.5, 0.25, 0.25), fade=1.0, fresh=1.0).start(TASKS, 0)
    for place in range(40):
        share = chance(TASKS[place])
        live.learn(group(TASKS[place], {0.0: [0] * 40, 0.5: [0, 1] * 20, 1.0: [1] * 40}[share]))
        live.ids[place] = TASKS[place].id
    places = live.candidates
    ids = [live.ids[place] for place in places]
    best = [places[int(live.score(ids, philox(n)).argmax())] for n in range(2000)]
    found = [np.mean([place in band for place in best]) for band in (HARD, EVEN, EASY)]
    assert found == pytest.approx([0.5, 0.25, 0.25], abs=0.04)
    metrics = live.metrics()
    assert [metrics[f"Banded/band_{n}"] for n in range(3)] == [0.5, 0.25, 0.25]
    assert share_of_mixed(Banded(shares=(0.0, 1.0, 0.0), fade=1.0)) > 0.8


# Retiring


def test_solved_tasks_rest_ever_longer_and_one_that_was_forgotten_is_back():
    live = Retiring(order=Epochs(shuffle=False), rest=4, longer=2.0).start(TASKS, 0)
    task = TASKS[0]

    def tested(version, rewards):
        live.step(Progress(version=version, drawn=0))
        live.observe(group(task, rewards))
        return live.resting.get(task.id, (0, 0))[0] - version

    assert tested(0, [1, 1]) == 4
    assert tested(4, [1, 1]) == 8
    assert tested(12, [1, 1]) == 16
    assert tested(28, [1, 0]) == -28
    assert tested(29, [1, 1]) == 4, "it begins anew"
    assert live.metrics()["Retiring/forgotten"] == pytest.approx(1 / 3)


def test_what_rests_is_passed_over_and_comes_in_time():
    tasks = Rows(rows=[{"prompt": f"{n}"} for n in range(4)])
    live = Retiring(order=Epochs(shuffle=False), rest=3).start(tasks, 0)
    live.step(Progress(version=0, drawn=0))
    live.observe(group(tasks[1], [1, 1]))
    assert [live.next().prompt for _ in range(6)] == list("023023")
    live.step(Progress(version=3, drawn=0))
    assert [live.next().prompt for _ in range(4)] == list("0123")
    for place in range(4):
        live.observe(group(tasks[place], [1, 1]))
    assert live.next().prompt in "0123", "all of them rest, and one is asked"


def test_without_a_rest_it_is_the_order():
    plain, none = World(Epochs().start(TASKS, 3), chance), World(Retiring(rest=0).start(TASKS, 3), chance)
    assert plain.steps(20) == none.steps(20)


@pytest.mark.parametrize(
    "make",
    [
        lambda: VarianceSampled(prior=0.0),
        lambda: StatePredicted(forget=2.0),
        lambda: Skipping(base=1.5),
        lambda: Banded(edges=(0.8, 0.2)),
        lambda: Banded(shares=(1.0,)),
        lambda: Frontier(alpha=-1.0),
        lambda: Retiring(rest=9, most=3),
    ],
)
def test_what_cannot_be_is_said(make):
    with pytest.raises(ValueError):
        make()
