from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GAE
from gimbal.advantages.reward_shaping.priced_cost import PricedCost
from gimbal.controllers.lagrangian import Lagrangian
from gimbal.critics.mlp import ValueMLP
from gimbal.environments.gym import Gymnasium
from gimbal.policies.gaussian import Gaussian
from gimbal.recipes.papers.control.pendulum import pendulum
from gimbal.runtime.run import HeldOut, Run

BLOWN = "gimbal.environments.bounded_cart:BoundedCart@gust=0.5"
# Up to 5 % of the steps out of bounds, at a price of at most 20.
LIMIT = Lagrangian(signal="cost/step", limit=0.05, rate=0.2, initial=0.5, high=20.0)


def ppo_lagrangian() -> Run:
    """PPO whose costs have a price that rises above a limit (RCPO, arXiv:1805.11074), on a cart under blows, beside a bound."""
    return replace(
        pendulum(),
        policy=Gaussian(observations=2, actions=1),
        tasks=Gymnasium(environment=BLOWN, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=BLOWN, seed=2, size=20), samples=1),
        max_staleness=0,
        reward_shaping=(PricedCost(multiplier=0.5),),
        controllers={"reward_shaping.0.multiplier": LIMIT},
        advantage=GAE(gamma=0.95, lam=0.95),
        critic=ValueMLP(observations=2, scale=10.0),
    )
