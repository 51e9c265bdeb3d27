"""The guardian of a learned world: the set against sums taken here, its limiting cases, and what it costs to leave it."""

import math
from dataclasses import replace

import pytest
import torch
from test_learned_worlds import INSIDE, WORLD, drawn, learner_of, ready

from gimbal import recipes
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.learning import guardian
from gimbal.learning.guardian import Guardian, Supported
from gimbal.learning.updates.dyna import BEGINS, GUARD, Dyna
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer


def normal(count, seed=0, scale=(1.0, 3.0)):
    drawn = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
    return drawn * torch.tensor(scale) + torch.tensor([5.0, -2.0])


def fitted(data, **settings):
    found = Supported(Guardian(**settings))
    found.fit(data)
    return found


def test_q_is_its_equation():
    data = normal(300)
    found = fitted(data, degree=2, coverage=0.9, ridge=0.01)
    z = ((data - data.mean(0)) / data.std(0, correction=0)).double()
    v = torch.stack([z[:, 0] ** 2, z[:, 0] * z[:, 1], z[:, 0], z[:, 1] ** 2, z[:, 1], torch.ones(300).double()], -1)
    moment = sum(torch.outer(one, one) for one in v) / 300 + 0.01 * torch.eye(6)
    distance = torch.stack([one @ torch.linalg.solve(moment, one) for one in v])
    kappa = sorted(distance.tolist())[math.ceil(0.9 * 299)]
    torch.testing.assert_close(found(data), (distance / kappa).float(), rtol=1e-4, atol=1e-5)


def test_the_set_holds_its_share_of_the_data_and_of_others_like_them():
    found = fitted(normal(2000), coverage=0.95)
    assert float((found(normal(2000)) <= 1).float().mean()) == pytest.approx(0.95, abs=0.002)
    assert float((found(normal(2000, seed=1)) <= 1).float().mean()) == pytest.approx(0.95, abs=0.02)
    assert (found(normal(50, seed=2, scale=(8.0, 24.0))) > 1).float().mean() > 0.7


def test_of_degree_one_it_is_an_ellipsoid():
    data, others = normal(500), normal(100, seed=1, scale=(4.0, 9.0))
    apart = (others - data.mean(0)).double()
    mahalanobis = ((apart @ torch.linalg.inv(torch.cov(data.T.double(), correction=0))) * apart).sum(-1)
    found = fitted(data, degree=1, ridge=1e-9)(others)
    kappa = float(((1 + mahalanobis) / found).median())
    torch.testing.assert_close(found * kappa, (1 + mahalanobis).float(), rtol=1e-3, atol=1e-3)


def test_with_all_covered_none_of_the_data_is_outside():
    assert (fitted(normal(400), coverage=1.0)(normal(400)) <= 1).all()


def test_a_hole_in_the_data_is_outside_where_the_degree_can_show_it():
    turn = torch.linspace(0, 2 * math.pi, 401)[:-1]
    ring, middle = torch.stack([turn.cos(), turn.sin()], -1), torch.zeros(1, 2)
    assert float(fitted(ring, degree=1)(middle)) < 1 < float(fitted(ring, degree=2)(middle))


def test_units_do_not_matter_and_a_number_that_never_changes_is_no_obstacle():
    data, others = normal(300), normal(50, seed=1)
    torch.testing.assert_close(fitted(1000 * data - 7)(1000 * others - 7), fitted(data)(others), rtol=1e-3, atol=1e-3)
    still = torch.cat([data, torch.ones(300, 1)], -1)
    inside = torch.cat([others, torch.ones(50, 1)], -1)
    assert fitted(still)(inside).isfinite().all() and (fitted(still)(inside + torch.tensor([0, 0, 1.0])) > 1).all()


def test_it_is_saved_and_comes_back():
    found, again = fitted(normal(100)), Supported(Guardian())
    assert not again(normal(5)).any()  # until it has seen data it holds everything
    again.load_state_dict(found.state_dict())
    assert torch.equal(again(normal(5)), found(normal(5)))


GUARDED = Dyna(inside=INSIDE, world=WORLD, share=0.75, guard=Guardian(coverage=0.3, price=2.5))


def test_an_imagined_step_outside_costs_its_price_and_no_other():
    learner, free = learner_of(GUARDED), learner_of(replace(GUARDED, guard=None))
    given, plain = (made.update._imagined(made.models, ready(made, drawn())) for made in (learner, free))
    steps = given.decisions
    data = drawn(20, seed=5).decisions
    support = fitted(torch.cat([data.observation_NSO, data.action_NSA], -1)[:, 0], coverage=0.3)
    x = torch.cat([steps.observation_NSO, steps.action_NSA], -1)
    outside = (support(x.flatten(0, 1)) > 1).reshape(given.shape) & given.mask_NS
    imagined = torch.arange(4)[:, None] >= 2  # two real rows, and two branches of three steps
    assert (outside & imagined).sum() > 0 and (outside & ~imagined).any(), "the real step outside costs nothing"
    torch.testing.assert_close(given.reward_NS, plain.reward_NS - 2.5 * (outside & imagined))
    torch.testing.assert_close(steps.observation_NSO, plain.decisions.observation_NSO)
    batch = ready(learner, drawn())
    told = [loss.metrics for loss in learner.update.losses(learner.models, batch)]
    share = [metrics["guard/outside"] for metrics in told if "guard/outside" in metrics]
    assert len(share) == 1 and 0 < share[0] <= 1 and int(batch.facts[BEGINS].sum()) == 2


def far(next_KO):
    return next_KO[:, 0].abs() > 0.5


def wrong(next_KO):
    return next_KO[:, 0]


def wide(next_KO):
    return next_KO[:, :1] > 0.5


def listed(next_KO):
    return [True]


def writes(next_KO):
    return far(next_KO.zero_())


def test_a_step_that_breaks_the_limit_costs_its_penalty_wherever_it_is_from():
    spec = replace(GUARDED, guard=Guardian(price=0.0, unsafe=far, penalty=4.0))
    assert spec.guard.unsafe == "test_guardian:far"
    learner, free = learner_of(spec), learner_of(replace(GUARDED, guard=None))
    given, plain = (made.update._imagined(made.models, ready(made, drawn())) for made in (learner, free))
    broken = (given.decisions.next_NSO[..., 0].abs() > 0.5) & given.mask_NS
    assert broken[:2].any() and broken[2:].any() and not broken[given.mask_NS].all()
    torch.testing.assert_close(given.reward_NS, plain.reward_NS - 4.0 * broken)
    told = [loss.metrics for loss in learner.update.losses(learner.models, ready(learner, drawn()))]
    assert sum("guard/unsafe" in metrics for metrics in told) == 1
    share = next(metrics["guard/unsafe"] for metrics in told if "guard/unsafe" in metrics)
    assert share == pytest.approx(float(broken[2:].float().mean()))


def test_a_rule_that_answers_otherwise_is_refused():
    for rule, said in (
        (wrong, r"torch.float32 of shape \[2\]"),
        (wide, r"torch.bool of shape \[2, 1\]"),
        (listed, r"\[True\]"),
    ):
        learner = learner_of(replace(GUARDED, guard=Guardian(unsafe=rule)))
        with pytest.raises(
            ValueError, match=rf"returned {said} for 2 observations; it must return a bool tensor of shape \[2\]"
        ):
            learner.update._imagined(learner.models, ready(learner, drawn()))


def test_a_rule_that_writes_into_the_observations_changes_none():
    seen = {}
    for rule in (far, writes):
        learner = learner_of(replace(GUARDED, guard=Guardian(price=0.0, unsafe=rule, penalty=0.0)))
        seen[rule] = learner.update._imagined(learner.models, ready(learner, drawn())).decisions.next_NSO
    assert torch.equal(seen[far], seen[writes])


def test_without_a_price_rewards_are_as_they_are():
    learner, free = learner_of(replace(GUARDED, guard=Guardian(price=0.0))), learner_of(replace(GUARDED, guard=None))
    for made in (learner, free):
        made.step(made.prepare(drawn()))
    for name, weight in learner.models.policy.state_dict().items():
        assert torch.equal(weight, free.models.policy.state_dict()[name]), name
    dear = learner_of(replace(GUARDED, guard=Guardian(coverage=0.3, price=50.0)))
    dear.step(dear.prepare(drawn()))
    own, other = (made.models["critic"].state_dict() for made in (dear, free))
    assert any(not torch.equal(weight, other[name]) for name, weight in own.items())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"degree": 0}, "degree 0"),
        ({"coverage": 0.0}, "coverage 0.0, a share"),
        ({"ridge": 0.0}, "ridge 0.0, which is above 0"),
        ({"price": -1.0}, "price is -1.0"),
        ({"penalty": math.inf}, "penalty is inf"),
        ({"unsafe": "far"}, r"unsafe is 'far'; it is a function of next observations \(file\.py:function\)"),
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong, said):
    with pytest.raises(ValueError, match=said):
        Guardian(**wrong)


def test_a_guard_that_would_price_nothing_is_refused():
    for nothing in ({"share": 0.0}, {"horizon": 0}):
        with pytest.raises(ValueError, match=r"there are none: both must be above 0, or guard=none"):
            replace(GUARDED, **nothing)
    with pytest.raises(ValueError, match=r"guard\.unsafe names none: give it a function"):
        replace(GUARDED, controllers={"guard.penalty": Lagrangian(signal="guard/unsafe")})


def test_more_products_than_can_be_held_are_refused_with_the_way_out():
    data = torch.randn(10, 70, generator=torch.Generator().manual_seed(0))
    with pytest.raises(
        ValueError, match=r"degree 2 makes 2,556 products of 70 numbers.*a smaller guard\.degree; 1 makes 71"
    ):
        fitted(data)
    assert (fitted(data, degree=1, coverage=1.0)(data) <= 1).all()


def test_data_are_taken_in_parts_that_make_no_difference(monkeypatch):
    data, others = normal(300), normal(50, seed=1, scale=(2.0, 6.0))
    whole = fitted(data)(others)
    monkeypatch.setattr(guardian, "PART", 7)
    torch.testing.assert_close(fitted(data)(others), whole)


def test_a_resumed_run_keeps_its_set_and_its_prices_and_goes_on_to_the_same_bits(tmp_path, single_thread):
    small = {"store.moves": 4, "store.minibatch": 16, "steps": 6, "held_out": None}
    trainer = Trainer(run := recipes.load("ogsrl", small))
    for _ in range(3):
        trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    resumed.begin()
    prices = trainer.learner.control_state
    begun = {path: rule.init() for path, rule in run.update.controllers.items()}
    assert resumed.learner.control_state == prices and all(prices[path] != begun[path] for path in begun)
    fitted_own, fitted_other = (made.learner.models.parts[GUARD].state_dict() for made in (trainer, resumed))
    assert fitted_own and all(torch.equal(x, fitted_other[name]) for name, x in fitted_own.items())
    for _ in range(3):
        metrics = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(metrics)
        assert metrics["guard/outside"] > 0
    assert resumed.learner.control_state == trainer.learner.control_state
    for own, other in zip(
        trainer.learner.models.modules.values(), resumed.learner.models.modules.values(), strict=True
    ):
        for name, x in own.state_dict().items():
            assert torch.equal(x, other.state_dict()[name]), name
    trainer.close()
    resumed.close()
