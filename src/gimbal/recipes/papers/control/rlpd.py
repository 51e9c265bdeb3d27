from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.environments.minari import Minari
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def rlpd() -> UpdateRun:
    """RLPD (arXiv:2302.02948) on Pendulum-v1: SAC, half of each minibatch from recorded episodes, ten critics with layer norm.

    Each target takes the least of two critics drawn at random, and the policy climbs the mean of all. Ours: one move per environment
    step (published: 20 of the critics for one of the policy), entropy stays in the target, and its goal is SAC's.
    """
    base = sac()
    assert isinstance(base.update, SoftActorCritic)
    return replace(
        base,
        store=Transitions(capacity=100_000, minibatch=128, prior=Minari(dataset="gimbal/pendulum/mixed-v0"), share=0.5),
        update=replace(
            base.update,
            critic=ActionValues(observations=3, actions=1, bound=2.0, members=10, layer_norm=True),
            subset=2,
        ),
        steps=300,
        checkpoint_every=150,
    )
