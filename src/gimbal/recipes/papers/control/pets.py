from __future__ import annotations

import math
from dataclasses import replace

from gimbal.dataflow.replay.transitions import Transitions
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.model_learning import ModelLearning
from gimbal.policies.dynamics import Dynamics
from gimbal.policies.planned import Planned
from gimbal.policies.planners import MPPI
from gimbal.recipes.papers.control.sac import sac
from gimbal.runtime.run import UpdateRun


def pets() -> UpdateRun:
    """PETS (arXiv:1805.12114) on Pendulum-v1: plans by MPPI in an ensemble learned from 1,000 environment steps."""
    return replace(
        sac(),
        policy=Planned(
            world=Dynamics(observations=3, actions=1, members=3),
            planner=MPPI(horizon=20, hold=2),
            bound=2.0,
        ),
        # Half of these updates left one seed of five at -573 (docs/worlds.md).
        store=Transitions(capacity=100_000, minibatch=128, update_to_data=4.0, learning_starts=100),
        update=ModelLearning(
            optimization=Optimization(learning_rate=1e-3, beta2=0.999, max_grad_norm=math.inf, decay="linear")
        ),
        steps=100,
        checkpoint_every=50,
        record_every=10,
    )
