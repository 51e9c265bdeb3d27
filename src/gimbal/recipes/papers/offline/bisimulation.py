from __future__ import annotations

from dataclasses import replace
from typing import cast

from gimbal.dataflow.replay.recordings import Recordings
from gimbal.environments.gym import Gymnasium
from gimbal.environments.minari import Minari
from gimbal.learning.updates.bisimulation import HistoryBisimulation
from gimbal.learning.updates.implicit_q import ImplicitQ
from gimbal.policies.encoded import Encoded
from gimbal.recipes.papers.offline.iql import iql
from gimbal.runtime.run import HeldOut, UpdateRun


def bisimulation() -> UpdateRun:
    """History bisimulation (arXiv:2310.20663): IQL on a code of histories, in which distances are those of what follows."""
    base, tasks = iql(), Minari(dataset="gimbal/cart/hidden-v0")
    was, held = cast(ImplicitQ, base.update), cast(HeldOut, base.held_out)
    critic = replace(was.critic, observations=31, bound=1.0)
    return replace(
        base,
        policy=Encoded(observations=31, actions=1, bound=1.0),
        tasks=tasks,
        held_out=replace(held, tasks=Gymnasium(environment=tasks.source, seed=2, size=20)),
        store=Recordings(moves=100, minibatch=64),
        update=HistoryBisimulation(inside=replace(was, critic=critic, beta=3.0)),
        steps=10,
        checkpoint_every=5,
    )
