"""A reward by a classifier of successes: its loss, what it learns from, and what the update inside of it is paid."""

import math
from dataclasses import replace

import pytest
import torch
from test_learned_worlds import INSIDE, POLICY, drawn

from gimbal import recipes
from gimbal.dataflow.replay.transitions import FRESH
from gimbal.environments.minari import Minari
from gimbal.learning.learner import Learner
from gimbal.learning.updates.classified_reward import CLASSIFIER, FAILURE, SUCCESS, ClassifiedReward
from gimbal.learning.updates.off_policy import BACKED, CRITIC
from gimbal.runtime import compose

EXAMPLES = Minari(dataset="gimbal/pendulum/expert-v0")
SMALL = ClassifiedReward(inside=INSIDE, examples=EXAMPLES, hidden=(8,))


def learner_of(update=SMALL):
    made = Learner(POLICY.load(1), update, seed=0)
    made.prepare(drawn(20, FRESH, seed=5))
    return made


def ready(made, batch):
    batch = made.prepare(batch)
    return made.update.survey(made.models, batch)[0]


def rows(recorded_SO):
    return {tuple(row) for row in torch.from_numpy(recorded_SO).tolist()}


def test_it_learns_last_observations_as_successes_and_others_as_failures():
    episodes = EXAMPLES.recording.episodes
    last = set().union(*(rows(episode.observation_SO[-1:]) for episode in episodes))
    before = set().union(*(rows(episode.observation_SO[:-1]) for episode in episodes))
    for online, share in ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0)):
        batch = drawn(400)
        surveyed = ready(learner_of(replace(SMALL, online=online)), batch)
        good, bad = surveyed.facts[SUCCESS][:, 0], surveyed.facts[FAILURE][:, 0]
        assert {tuple(row) for row in good.tolist()} <= last
        own = (bad == batch.decisions.final_NO).all(-1)
        assert float(own.float().mean()) == pytest.approx(share, abs=0.08 if 0 < share < 1 else 0)
        assert {tuple(row) for row in bad[~own].tolist()} <= before


def test_its_loss_is_that_of_two_coins_and_its_gradient_that_of_finite_differences():
    made = learner_of()
    surveyed, classifier = ready(made, drawn()), made.models[CLASSIFIER].double()
    facts = {name: surveyed.facts[name].double() for name in (SUCCESS, FAILURE)}
    surveyed = replace(surveyed, facts={**surveyed.facts, **facts})

    def loss():
        found = next(made.update.losses(made.models, surveyed))
        assert found.of == (CLASSIFIER,)
        return found.value

    good, bad = (classifier(facts[name][:, 0])[:, 0] for name in (SUCCESS, FAILURE))
    expected = -(good.sigmoid().log() + (1 - bad.sigmoid()).log()).mean()
    torch.testing.assert_close(loss(), expected)
    weight = classifier[0].weight
    loss().backward()
    for place in ((0, 0), (3, 2), (7, 1)):
        values = []
        for by in (1e-5, -2e-5):
            with torch.no_grad():
                weight[place] += by
            values.append(float(loss().detach()))
        with torch.no_grad():
            weight[place] += 1e-5
        assert (values[0] - values[1]) / 2e-5 == pytest.approx(float(weight.grad[place]), rel=1e-4, abs=1e-9)


def at_the_right(made):
    """A classifier that takes all to the right of .2 for successes."""
    first, last = made.models[CLASSIFIER][0], made.models[CLASSIFIER][-1]
    with torch.no_grad():
        for parameter in (first.weight, first.bias, last.weight, last.bias):
            parameter.zero_()
        first.weight[0, 0], last.weight[0, 0], last.bias[0] = 1.0, 1.0, -0.2


def test_inside_is_paid_1_for_what_looks_like_a_success_and_the_environment_is_not_read():
    made, alone = learner_of(replace(SMALL, classifier_learning_rate=0.0)), learner_of(INSIDE)
    at_the_right(made)
    for number in range(3):
        batch = drawn(move=number, seed=number)
        paid_N1 = (batch.decisions.final_NO[:, :1] > 0.2).float()
        assert 0 < float(paid_N1.mean()) < 1
        prepared = made.prepare(batch)
        torch.testing.assert_close(prepared.facts[BACKED], paid_N1)
        made.step(prepared)
        alone.step(alone.prepare(replace(batch, reward_NS=paid_N1)))
    for name in ("policy", CRITIC):
        pairs = zip(made.models[name].parameters(), alone.models[name].parameters(), strict=True)
        assert all(torch.equal(one, other) for one, other in pairs), name


def test_it_tells_what_was_paid_of_what_came_in():
    made = learner_of()
    at_the_right(made)
    batch = drawn(40, FRESH, seed=9)
    _, told = made.update.prepare(made.models, batch)
    assert told["classifier/paid"] == pytest.approx(float((batch.decisions.final_NO[:, 0] > 0.2).float().mean()))


def test_places_that_look_like_successes_are_unlearned_where_the_policy_is():
    """Failures are all on the left and successes in the middle; the policy is far to the right."""
    made = {online: learner_of(replace(SMALL, online=online, classifier_learning_rate=3e-2)) for online in (0.0, 1.0)}
    for online, learner in made.items():
        for number in range(150):
            batch = drawn(64, move=number, seed=number)
            far = replace(batch.decisions, final_NO=batch.decisions.final_NO * 0.1 + torch.tensor([3.0, 0.0, 0.0]))
            batch = learner.prepare(replace(batch, decisions=far))
            middle, left = (torch.randn(64, 1, 3) * 0.1 + torch.tensor([x, 0.0, 0.0]) for x in (0.0, -3.0))
            facts = {**batch.facts, SUCCESS: middle} | ({FAILURE: left} if not online else {})
            learner.step(replace(batch, facts=facts))
        right = learner.models[CLASSIFIER](torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))[:, 0]
        assert bool(right[0] > 0) == (online == 0.0) and bool(right[1] > 0)


@pytest.mark.parametrize("wrong", [{"online": -0.1}, {"online": 1.1}, {"classifier_learning_rate": math.inf}])
def test_bad_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="ClassifiedReward has online"):
        replace(SMALL, **wrong)


def test_examples_of_another_environment_and_several_steps_are_refused():
    run = recipes.load("serl")
    other = replace(run, update=replace(run.update, examples=EXAMPLES))
    with pytest.raises(ValueError, match="was recorded in Pendulum-v1, and this run acts in gimbal"):
        compose.check(other)
    with pytest.raises(ValueError, match=r"learns what follows a single step, but store\.n is 3: set store\.n=1"):
        compose.check(replace(run, store=replace(run.store, n=3)))
