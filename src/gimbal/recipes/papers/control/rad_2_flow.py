from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.corrected_plans import CorrectedPlans
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.environments.gym import Gymnasium
from gimbal.environments.merging_plans import AHEAD, PLANS
from gimbal.environments.minari import Minari
from gimbal.learning.updates.implicit_flow import ImplicitFlow
from gimbal.policies.best_of import BestOf
from gimbal.recipes.papers.offline.idql import idql
from gimbal.runtime.run import HeldOut, UpdateRun


def rad_2_flow() -> UpdateRun:
    """RAD-2's generator (arXiv:2604.15308): a flow clones its own plans, at other speeds where the simulator pays more for them.

    The flow that goes on is named by policy.model, and tasks.dataset holds its episodes, by `gimbal record` of a run of rad_2. Alone it
    begins from nothing, on plans that were drawn at random.
    """
    base = idql()
    update = base.update
    assert isinstance(base.policy, BestOf) and isinstance(base.held_out, HeldOut) and isinstance(update, ImplicitFlow)
    sizes = {"observations": 11, "actions": AHEAD, "bound": 1.0}
    return replace(
        base,
        policy=replace(base.policy, **sizes),
        tasks=Minari(dataset="gimbal/merging/random-v0"),
        held_out=replace(base.held_out, tasks=Gymnasium(environment=f"{PLANS}@logs=0", seed=2, size=100)),
        store=Recordings(moves=250, minibatch=128, corrections=CorrectedPlans()),
        update=replace(update, critic=replace(update.critic, **sizes)),
        steps=4,
    )
