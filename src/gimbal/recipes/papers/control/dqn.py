from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.method import Optimization
from gimbal.learning.updates.dqn import DQN
from gimbal.learning.updates.off_policy import Explore
from gimbal.policies.greedy import Greedy
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import HeldOut, UpdateRun


def dqn() -> UpdateRun:
    """Double DQN (arXiv:1509.06461) on CartPole-v1: four environments side by side, half an update from the replay buffer per step."""
    return replace(
        sac(),
        policy=Greedy(observations=4, actions=2),
        engine=Episodes(slots=4, segment=8),
        tasks=Gymnasium(environment="CartPole-v1", seed=1),
        held_out=HeldOut(
            tasks=Gymnasium(environment="CartPole-v1", seed=2, size=20), samples=1, engine=Episodes(slots=20)
        ),
        prompts_per_step=4,
        store=Transitions(capacity=50_000, minibatch=64, update_to_data=0.5, learning_starts=1000),
        update=DQN(
            explore=Explore(first=1.0, last=0.05, over=10_000),
            optimization=Optimization(learning_rate=1e-3, beta2=0.999, max_grad_norm=10.0, decay="linear"),
        ),
        steps=1600,
        checkpoint_every=800,
        record_every=100,
    )
