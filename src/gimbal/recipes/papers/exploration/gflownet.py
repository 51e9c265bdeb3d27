from __future__ import annotations

from gimbal.advantages import GroupCentered
from gimbal.dataflow.replay.recent import Recent
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.objectives.surrogates.trajectory_balance import FlowBalance
from gimbal.ops import SequenceSum
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import StepSampling
from gimbal.runtime.run import HeldOut, Run

GRID = "gimbal.environments.hypergrid:flow"


def gflownet() -> Run:
    """A GFlowNet (arXiv:2201.13259) on an 8 x 8 grid with four modes: ends in proportion to their reward, by trajectory balance.

    Data is up to four versions stale, and two of five groups come from the last eight steps; nothing weights them. The ends that a
    policy draws are known exactly (``environments/hypergrid.py``), and so is their distance from the rewards.
    """
    return Run(
        policy=Categorical(observations=16, actions=3),
        engine=Episodes(slots=64),
        tasks=Gymnasium(environment=GRID, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=GRID, seed=2, size=1), samples=64),
        sampling=StepSampling(max_length=15),
        prompts_per_step=2,
        num_generations=32,
        store=Recent(window=8),
        max_staleness=4,
        ahead="full",
        objective=FlowBalance(),
        advantage=GroupCentered(),
        aggregation=SequenceSum(),
        optimization=Optimization(learning_rate=1e-2, beta2=0.999),
        steps=300,
        threads=1,
        checkpoint_every=100,
        record_every=100,
    )
