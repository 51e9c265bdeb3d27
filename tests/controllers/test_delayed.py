"""A value that sets in late."""

import sys
from pathlib import Path

import pytest
import torch

from gimbal.controllers.delayed import Delayed
from gimbal.critics.tokens import HiddenValue
from gimbal.recipes.papers.credit.ppo_max import ppo_max
from gimbal.runtime.local import Trainer

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import small_run


def walk(rule, signals):
    state, values = rule.init(), [rule.init()["value"]]
    for signal in signals:
        state = rule.update(state, signal)
        values.append(state["value"])
    return values


def test_delayed_sets_in_after_so_many_steps():
    assert walk(Delayed(steps=2, after=3.0), [{}] * 4) == [0, 0, 3, 3, 3]
    assert walk(Delayed(steps=0, after=3.0), [{}] * 2) == [3, 3, 3]
    with pytest.raises(ValueError, match="no delay"):
        Delayed(steps=-1)


def test_while_the_rate_is_0_the_critic_learns_and_the_policy_stays():
    keep = ("advantage", "reward_shaping", "shaping", "regularisers", "controllers", "optimization")
    method = {name: getattr(ppo_max(), name) for name in keep}
    method["controllers"] = {**method["controllers"], "optimization.learning_rate": Delayed(steps=1, after=1e-3)}
    trainer = Trainer(small_run(**method, critic=HiddenValue(), num_generations=2))
    policy, critic = trainer.learner.policy, trainer.learner.models["critic"]

    def moved(network, before):
        return any(not torch.equal(p, q) for p, q in zip(network.parameters(), before, strict=True))

    for policy_moves in (False, True):
        weights, heads = ([p.detach().clone() for p in part.parameters()] for part in (policy, critic))
        trainer.advance()
        assert moved(critic, heads) and moved(policy, weights) == policy_moves
