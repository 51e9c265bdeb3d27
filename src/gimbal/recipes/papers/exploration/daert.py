from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.transitions import Transitions
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Gymnasium
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.dqn import DQN
from gimbal.learning.updates.off_policy import Explore
from gimbal.policies.control import StepSampling
from gimbal.policies.greedy import Greedy
from gimbal.recipes.papers.control.dqn import dqn
from gimbal.runtime.run import HeldOut, UpdateRun

PROGRAM = "gimbal.environments.planted_bugs:PlantedBugs"


def daert() -> UpdateRun:
    """DAERT: a red team that prefers words by how many attacks lie behind them, so that it finds many; 2,000 commands.

    Not shown here: robots and vision-language-action models, on which it was published, nor a language model as the red team.
    """
    return replace(
        dqn(),
        policy=Greedy(observations=32, actions=8, value_temperature=0.3),
        engine=Episodes(slots=40),
        tasks=Gymnasium(environment=PROGRAM, seed=1),
        held_out=HeldOut(tasks=Gymnasium(environment=PROGRAM, seed=2, size=200), samples=1, engine=Episodes(slots=40)),
        sampling=StepSampling(max_length=4),
        prompts_per_step=40,
        store=Transitions(capacity=10_000, minibatch=160, update_to_data=0.125, learning_starts=160),
        update=DQN(
            gamma=1.0,
            tau=0.05,
            chance=1.0,
            explore=Explore(first=0.01, last=0.01),
            optimization=Optimization(learning_rate=3e-3, beta2=0.999),
        ),
        steps=50,
        checkpoint_every=25,
        record_every=10,
    )
