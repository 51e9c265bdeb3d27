from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.dqn import DQN
from gimbal.learning.updates.off_policy import Explore
from gimbal.policies.greedy import Greedy
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import HeldOut, UpdateRun


def dqn() -> UpdateRun:
    """Double DQN (arXiv:1509.06461) on CartPole-v1: eight environments side by side, one update from the replay buffer for four steps.

    If the policy can still recover from every state, both actions have the same value, and the error of Q decides which looks best.
    Exploration that stays at .25, and five-step targets that include it, separate the two: states near the edge are worth
    less, because a careless step there may be the last. With .05 and one step, returns at the mode stayed between 180 and 320.
    Outputs are in units of 30: without that, values stay at 40 at the end of the track, and the cart runs off it.
    """
    return replace(
        sac(),
        policy=Greedy(observations=4, actions=2, hidden=(128, 128), normalize=True, scale=30.0),
        engine=Episodes(slots=8, segment=16),
        tasks=Gymnasium(environment="CartPole-v1", seed=1),
        held_out=HeldOut(
            tasks=Gymnasium(environment="CartPole-v1", seed=2, size=20), samples=1, engine=Episodes(slots=20)
        ),
        prompts_per_step=8,
        store=Transitions(capacity=50_000, minibatch=128, update_to_data=0.25, learning_starts=1000, n=5),
        update=DQN(
            tau=0.02,
            explore=Explore(first=1.0, last=0.25, over=10_000),
            optimization=Optimization(learning_rate=5e-4, beta2=0.999, max_grad_norm=10.0, decay="linear"),
        ),
        steps=390,
        checkpoint_every=195,
        record_every=30,
    )
