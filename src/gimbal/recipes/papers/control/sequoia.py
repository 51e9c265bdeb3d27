from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.coupled_bandit import ARMS, BUDGET, WORKERS
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.combinatorial_q import CombinatorialQ
from gimbal.policies.combinatorial import Combinatorial
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import HeldOut, UpdateRun

BANDIT = "gimbal.environments.coupled_bandit:CoupledBandit"


def sequoia() -> UpdateRun:
    """SEQUOIA (arXiv:2503.01919) on a coupled restless bandit: a program finds the best two of eight workers by a Q network."""
    return replace(
        sac(),
        policy=Combinatorial(
            observations=ARMS,
            actions=WORKERS,
            rows=((1.0,) * WORKERS,),
            limits=(float(BUDGET),),
            scale=10.0,
            hidden=(16,),
        ),
        engine=Episodes(slots=4, segment=10),
        tasks=Gymnasium(environment=BANDIT, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=BANDIT, seed=2, size=20), samples=1, engine=Episodes(slots=20)),
        prompts_per_step=4,
        store=Transitions(capacity=50_000, minibatch=64, update_to_data=1.0, learning_starts=200),
        update=CombinatorialQ(
            gamma=0.9,
            tau=0.01,
            optimization=Optimization(learning_rate=3e-3, beta2=0.999, max_grad_norm=10.0),
        ),
        steps=30,
        checkpoint_every=15,
    )
