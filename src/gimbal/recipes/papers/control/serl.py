from __future__ import annotations

from dataclasses import replace

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.environments.docking import STEP
from gimbal.environments.gym import Gymnasium
from gimbal.environments.minari import Minari
from gimbal.learning.updates.classified_reward import ClassifiedReward
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.squashed import SquashedGaussian
from gimbal.recipes.papers.control.rlpd import rlpd
from gimbal.runtime.run import UpdateRun

DOCKING = "gimbal.environments.docking:Docking"
DEMOS = Minari(dataset="gimbal/dock/demos-v0")


def serl() -> UpdateRun:
    """SERL (arXiv:2401.16013) of a point and its dock: RLPD on 20 demonstrations, paid by a classifier of their last observations."""
    run, sizes = rlpd(), {"observations": 6, "actions": 2, "bound": STEP}
    assert isinstance(run.update, SoftActorCritic) and run.held_out is not None and isinstance(run.store, Transitions)
    inside = replace(run.update, critic=ActionValues(**sizes, members=10, layer_norm=True), gamma=0.95, tau=0.02)
    return replace(
        run,
        policy=SquashedGaussian(**sizes),
        tasks=Gymnasium(environment=DOCKING, seed=1),
        held_out=replace(run.held_out, tasks=Gymnasium(environment=DOCKING, seed=2, size=20)),
        store=replace(run.store, prior=DEMOS),
        update=ClassifiedReward(inside=inside, examples=DEMOS),
    )
