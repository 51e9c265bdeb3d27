"""What steps cost, from an environment's info to rows, buffers, scores and evaluations, apart from the reward."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch

from gimbal import recipes
from gimbal.advantages.reward_shaping.priced_cost import COST_AFTER, PricedCost
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.dataflow.packing import pack
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.base import Request, drained
from gimbal.engines.episodes import Episodes
from gimbal.environments.bounded_cart import EDGE
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.policies.gaussian import Gaussian
from gimbal.records import Episode, Group
from gimbal.runtime.local import Trainer

CART = "gimbal.environments.bounded_cart:BoundedCart"


class Square(gymnasium.Env):
    """One action in [-3, 3] pays itself and costs its square: with a limit of 1/4 the best action is 1/2, at a price of 1."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-3, 3, (1,), np.float32)
    says = staticmethod(lambda action, step: {"cost": action**2})
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.zeros(1, np.float32), float(action[0]), False, True, self.says(float(action[0]), self.steps)


class Forgetful(Square):
    says = staticmethod(lambda action, step: {"cost": 0.0} if step < 3 else {})


class Late(Square):
    says = staticmethod(lambda action, step: {"cost": 0.0} if step > 2 else {})


class Wordy(Square):
    says = staticmethod(lambda action, step: {"cost": "much"})


def rows(segment=0, episodes=2, steps=40):
    """Rollouts of a cart, each of at most so many steps."""
    engine, task = (
        Episodes(slots=1, segment=segment).start(Gaussian(observations=2, actions=1).load(3)),
        Gymnasium(environment=CART),
    )
    engine.load(0, engine._policy.state_dict())
    sampling = replace(recipes.function("pendulum")().sampling, max_length=steps)
    found = []
    for number in range(episodes):
        engine.submit(Request(group=number, task=task[number], sample=0, sampling=sampling, seed=0))
        found += [ended.outcome.last for ended in drained(engine).values()]
    return found


def test_rows_carry_what_the_cart_said_and_episodes_their_sum():
    for row in rows():
        places = torch.cat([row.decisions.observation_NSO[0, 1:, 0], row.decisions.final_NO[:, 0]])
        assert torch.equal(row.cost_S, (places.abs() > EDGE).float())
        assert row.scores["cost"] == float(row.cost_S.sum())
    whole, parts = rows(episodes=1), rows(segment=10, episodes=4)
    assert [row.stop for row in parts] == ["paused"] * 3 + ["truncated"] and "cost" not in parts[0].scores
    assert parts[-1].scores["cost"] == float(sum(row.cost_S.sum() for row in parts))
    assert len(whole[0].cost_S) == 40


@pytest.mark.parametrize("segment", [0, 20])
def test_an_episode_that_goes_on_after_a_resume_costs_what_it_would_have(segment):
    """Saved in the middle of a row; with segments, of the second row of its episode."""

    def played(broken):
        policy, task = Gaussian(observations=2, actions=1).load(3), Gymnasium(environment=f"{CART}@gust=3")
        sampling, found = replace(recipes.function("pendulum")().sampling, max_length=40), []
        engine = Episodes(slots=1, segment=segment).start(policy)
        engine.load(0, policy.state_dict())
        for number in range(40 // (segment or 40)):
            engine.submit(Request(group=number, task=task[0], sample=0, sampling=sampling, seed=0))
        for at in range(41):
            if at == broken:
                saved = engine.state_dict()
                engine = Episodes(slots=1, segment=segment).start(policy)
                engine.load(0, policy.state_dict())
                engine.load_state_dict(saved)
            found += [ended.outcome.last for ended in engine.step()]
        return found

    whole, again = played(None), played(31)
    assert [row.stop for row in whole][-1] == "truncated" and whole[-1].scores["cost"] > 0
    for row, other in zip(whole, again, strict=True):
        assert torch.equal(row.cost_S, other.cost_S) and row.scores == other.scores


def test_packing_and_a_buffer_keep_costs_beside_their_steps():
    packed = pack([Group(task=row.task, index=n, episodes=(Episode.of(row),)) for n, row in enumerate(rows(steps=30))])
    place_NS = packed.decisions.next_NSO[..., 0]
    assert torch.equal(packed.facts[COST_AFTER], (place_NS.abs() > EDGE).float())
    ring = Transitions(capacity=50, minibatch=64, learning_starts=0, update_to_data=0.1).start(0)
    drawn = ring.take(packed)
    assert torch.equal(drawn.facts[COST_AFTER], (drawn.decisions.next_NSO[..., 0].abs() > EDGE).float())
    lost = replace(packed, facts={name: x for name, x in packed.facts.items() if name != COST_AFTER})
    with pytest.raises(ValueError, match="with and without 'cost/after'"):
        ring.take(lost)


@pytest.mark.parametrize(
    ("kind", "step", "said"),
    [
        ("Forgetful", 3, "no cost in its info, after steps that told one"),
        ("Late", 3, r"cost=0\.0 in its info, after steps that told none"),
        ("Wordy", 1, "cost='much' in its info"),
    ],
)
def test_a_cost_that_is_said_now_and_then_or_is_no_number_is_refused(kind, step, said):
    world = Environment(f"{__file__}:{kind}")
    for at in range(1, step + 1):
        world.reset(Gymnasium()[0], seed=0)
        if at < step:
            world.step(np.zeros(1))
    with pytest.raises(ValueError, match=rf"step tells {said}; either each step tells a number of size"):
        world.step(np.zeros(1))


def test_evaluations_tell_what_an_episode_costs():
    run = replace(recipes.function("ppo_lagrangian")(), steps=1)
    trainer = Trainer(run)
    trainer.begin()
    told = trainer.evaluate().metrics()
    trainer.close()
    assert 0 < told["eval/cost"] <= 100 and 0 <= told["eval/greedy_cost"] <= 100


def squared(run, **changes):
    tasks = {"tasks.environment": f"{__file__}:Square", "held_out": None, "prompts_per_step": 32, "engine.slots": 32}
    return recipes.load(run, {**tasks, **changes})


@pytest.mark.slow
def test_ppo_finds_the_best_action_within_a_limit_and_its_price():
    rule = Lagrangian(signal="cost/step", limit=0.25, rate=0.2, initial=1.5, high=5.0)
    settings = {"optimization.learning_rate": 1e-2, "optimization.epochs": 4, "optimization.decay": "constant"}
    run = squared("ppo_lagrangian", **settings, steps=70)
    trainer = Trainer(replace(run, controllers={"reward_shaping.0.multiplier": rule}))
    told = [trainer.advance()[0] for _ in range(70)][-10:]
    trainer.close()
    for name, known in (("cost/step", 0.25), ("reward/mean", 0.5), ("control/reward_shaping.0.multiplier", 1.0)):
        assert np.mean([step[name] for step in told]) == pytest.approx(known, rel=0.1), name


def test_sac_prices_old_steps_by_the_present_multiplier_and_new_ones_are_measured():
    run = recipes.load("sac_lagrangian", {"store.learning_starts": 0, "store.minibatch": 8})
    update = replace(run.update, price=PricedCost(multiplier=1.5), controllers={})
    trainer = Trainer(replace(run, update=update))
    trainer.begin()
    trainer.advance()
    groups, *_ = trainer.pipeline.next_batch(trainer.learner.version)
    rows_ = trainer.store.take(pack(groups))
    cost_N1 = torch.rand(rows_.shape, generator=torch.Generator().manual_seed(0))  # so soon the cart is inside
    rows_ = rows_.with_columns({COST_AFTER: cost_N1})
    ready, told = trainer.learner.update.prepare(trainer.learner.models, rows_)
    trainer.close()
    n = ready.shape[0]
    assert told["cost/step"] == pytest.approx(float(cost_N1[n:].mean())) and len(cost_N1) == n + 10
    reward_N, cost_N = rows_.reward_NS[:n, 0], rows_.facts[COST_AFTER][:n, 0]
    assert torch.allclose(ready.facts["backed/reward"][:, 0], (reward_N - 1.5 * cost_N) / 2.5)
    assert torch.equal(trainer.store.rows.reward_NS[10:20], rows_.reward_NS[n:]), "the buffer keeps what was paid"
