from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import GAE
from gimbal.critics.mlp import ValueMLP
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import StepSampling
from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.runtime.run import HeldOut, Run

MERGING = "gimbal.environments.merging:Merging"


def perlad() -> Run:
    """PerlAD's RL (arXiv:2603.14908) on merging: PPO among recorded cars that react to it, evaluated among drivers.

    Ours: PPO from the start on pushes and brakes. The paper imitates the way and learns the speed along it; here there is one way. Not
    shown here: suites of driving scenes, with maps and many kinds of road users.
    """
    base = cartpole()
    return replace(
        base,
        policy=Categorical(observations=11, actions=5),
        engine=Episodes(slots=32),
        tasks=Gymnasium(environment=MERGING, seed=1),
        held_out=HeldOut(
            tasks=Gymnasium(environment=f"{MERGING}@logs=0", seed=2, size=100), samples=1, engine=Episodes(slots=50)
        ),
        sampling=StepSampling(max_length=32),
        prompts_per_step=32,
        max_staleness=0,
        advantage=GAE(gamma=0.97, lam=0.95),
        critic=ValueMLP(observations=11, scale=5.0),
        optimization=replace(base.optimization, learning_rate=1e-3, critic_learning_rate=1e-3),
        steps=40,
    )
