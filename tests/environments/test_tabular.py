"""Problems with known answers: the values are right, and what methods reach is held against them."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch

from gimbal import recipes
from gimbal.advantages import ReturnToGo
from gimbal.config import Text
from gimbal.environments.gym import Environment
from gimbal.environments.tabular import DEPTH, DIALS, LENGTH, Tabular, combination, right, river
from gimbal.objectives import EntropyBonus, Reinforce
from gimbal.policies.control import Steps
from gimbal.runtime.local import Trainer

ALWAYS_RIGHT, ALWAYS_LEFT = np.eye(2)[[1] * LENGTH], np.eye(2)[[0] * LENGTH]
OPENS = np.eye(DIALS)[[right(state) for state in range(DEPTH)]]


def test_transitions_are_probabilities():
    for problem in (river(), combination()):
        total_SA = problem.transition_SAS.sum(-1)
        assert ((total_SA == 0) | np.isclose(total_SA, 1)).all() and (problem.transition_SAS >= 0).all()
    assert river().transition_SAS.sum(-1) == pytest.approx(1)


def test_values_of_the_lock_by_hand():
    lock = combination()
    assert lock.values()[0] == 1 and lock.regret(OPENS) == 0
    assert lock.values(np.full((DEPTH, DIALS), 1 / 3))[0] == pytest.approx(1 / 81)
    almost = 0.9 * OPENS + 0.05 * (1 - OPENS)
    assert lock.regret(almost) == pytest.approx(1 - 0.9**4)


def test_no_policy_of_the_river_is_better_than_the_best_and_swimming_right_nearly_is_it():
    problem = river()
    every = [np.eye(2)[list(actions)] for actions in product((0, 1), repeat=LENGTH)]
    values = [problem.values(policy)[0] for policy in every]
    best = problem.values()[0]
    assert max(values) <= best == pytest.approx(3.3973, abs=1e-4)
    assert (every[int(np.argmax(values))] == ALWAYS_RIGHT).all() and problem.regret(ALWAYS_RIGHT) < 2e-4
    assert problem.values(ALWAYS_LEFT)[0] == pytest.approx(20 * 0.005)


@pytest.mark.parametrize("name", ["river", "combination"])
def test_episodes_earn_what_the_values_say(name):
    """The mean of 600 episodes is within four standard errors of the value."""
    problem = {"river": river, "combination": combination}[name]()
    policy_SA = 0.2 / problem.reward_SA.shape[1] + 0.8 * (ALWAYS_RIGHT if name == "river" else OPENS)
    env, generator, returns = Tabular(problem), np.random.default_rng(0), []
    for episode in range(600):
        env.reset(seed=episode)
        earned, over = 0.0, False
        while not over:
            _, reward, ended, cut, _ = env.step(int(generator.choice(policy_SA.shape[1], p=policy_SA[env.state])))
            earned, over = earned + reward, ended or cut
        returns.append(earned)
        assert env.steps <= problem.horizon
    error = np.std(returns) / np.sqrt(len(returns))
    assert np.mean(returns) == pytest.approx(problem.values(policy_SA)[0], abs=4 * error)


@pytest.mark.parametrize(("name", "interface"), [("river_swim", "6 observations, 2"), ("lock", "4 observations, 3")])
def test_they_are_found_as_a_user_types_them(name, interface):
    assert Environment(f"gimbal.environments.tabular:{name}").interface == f"{interface} choices"


def probabilities(policy, states, actions):
    shown = torch.eye(states).repeat_interleave(actions, 0)
    steps = Steps(
        observation_NSO=shown[:, None],
        action_NSA=torch.arange(actions).repeat(states)[:, None, None],
        final_NO=shown,
        length_N=torch.ones(len(shown), dtype=torch.long),
        terminated_N=torch.zeros(len(shown), dtype=torch.bool),
    )
    with torch.no_grad():
        return policy.evaluate(steps).logprob_NS.exp().reshape(states, actions).double().numpy()


def learned(recipe, steps, change=lambda run: run, **words):
    """What a recipe's policy does in each state of the lock after these steps."""
    given = {name.replace("__", "."): Text(word) for name, word in words.items()}
    environment = {"tasks.environment": Text("gimbal.environments.tabular:lock"), "held_out": Text("none")}
    trainer = Trainer(replace(change(recipes.load(recipe, {**environment, **given})), threads=1))
    try:
        for _ in range(steps):
            trainer.advance()
        return probabilities(trainer.learner.policy, DEPTH, DIALS)
    finally:
        trainer.close()


def plain(run):
    """Without critic, clip and several passes: REINFORCE."""
    return replace(
        run,
        objective=Reinforce(),
        advantage=ReturnToGo(),
        regularisers=(EntropyBonus(coef=0.01),),
        critic=None,
        optimization=replace(run.optimization, epochs=1, minibatches=1, learning_rate=1e-2),
        steps=1000,  # over which the rate falls
    )


@pytest.mark.slow
@pytest.mark.parametrize(("change", "steps"), [(lambda run: run, 20), (plain, 40)], ids=["ppo", "reinforce"])
def test_a_policy_gradient_opens_the_lock(change, steps):
    policy_SA = learned("cartpole", steps, change)
    assert combination().regret(np.eye(DIALS)[policy_SA.argmax(1)]) == 0
    assert combination().regret(policy_SA) < 0.1


@pytest.mark.slow
def test_dqn_opens_the_lock_and_loses_what_it_explores():
    policy_SA = learned(
        "dqn",
        120,
        store__learning_starts="100",
        update__explore__over="1000",
        policy__scale="1",
        policy__normalize="no",
    )
    assert combination().regret(np.eye(DIALS)[policy_SA.argmax(1)]) == 0
    # It takes any action with probability .25: each of four right ones has 1 - .25 x 2 / 3.
    assert combination().regret(policy_SA) == pytest.approx(1 - (1 - 0.25 * 2 / 3) ** 4, abs=1e-4)
