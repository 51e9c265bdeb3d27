from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.edited_flow import EditedFlow
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.best_of import BestOf
from gimbal.recipes.papers.control.rlpd import rlpd
from gimbal.runtime.run import UpdateRun


def expo() -> UpdateRun:
    """EXPO (arXiv:2507.07986) on Pendulum-v1: a flow clones recorded and own actions, a policy edits them, and the best is played.

    Data, critics and their targets are `rlpd`'s. Ours: one move per environment step, as there.
    """
    base = rlpd()
    assert isinstance(base.update, SoftActorCritic) and isinstance(base.update.critic, ActionValues)
    return replace(
        base,
        policy=BestOf(
            observations=3, actions=1, bound=2.0, proposals=8, edit=0.3, score="mean", members=10, layer_norm=True
        ),
        update=EditedFlow(
            critic=base.update.critic,
            subset=2,
            temperature_learning_rate=1e-3,
            optimization=base.update.optimization,
        ),
    )
