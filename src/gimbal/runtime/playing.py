"""Episodes of a policy, played to be recorded."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import numpy as np
import torch

from gimbal.engines.base import Request, drained
from gimbal.engines.episodes import Episodes
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.minari import Minari
from gimbal.environments.recording import RecordedEpisode, Recording
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.control import Steps
from gimbal.records import Drop
from gimbal.runtime.run import AbstractRun


def recorded(run: AbstractRun, policy: AbstractPolicy, *, episodes: int, seed: int, temperature: float) -> Recording:
    """``episodes`` whole ones of this policy in the run's environment, of other seeds than it was trained and evaluated on."""
    if not isinstance(run.tasks, Gymnasium | Minari) or not run.tasks.source:
        raise ValueError(
            f"only episodes of environments can be recorded, but this run's tasks are {type(run.tasks).__name__}: give a run of a "
            "recipe such as sac or iql"
        )
    tasks = Gymnasium(environment=run.tasks.source, seed=1_000_003 + seed, size=episodes)
    sampling = replace(run.sampling, temperature=temperature)
    found: list[RecordedEpisode] = []
    with closing(Episodes(slots=min(16, episodes)).start(policy)) as engine:
        engine.load(0, policy.weights())
        for index in range(episodes):
            engine.submit(Request(group=index, task=tasks[index], sample=0, sampling=sampling, seed=seed))
        ended = drained(engine)
    world = Environment(tasks.source)
    for index in range(episodes):
        outcome = ended[index, 0].outcome
        if isinstance(outcome, Drop) or outcome.error:
            said = outcome.said if isinstance(outcome, Drop) else outcome.error
            raise ValueError(f"episode {index} of {tasks.source} broke: {said}")
        row, steps = outcome.last, outcome.last.decisions
        assert isinstance(steps, Steps)
        found.append(
            RecordedEpisode(
                reward_S=row.reward_S.numpy(),
                action_SA=_taken(world, steps.action_NSA[0].numpy()),
                observation_SO=torch.cat([steps.observation_NSO[0], steps.final_NO]).numpy(),
                terminated=row.stop == "terminated",
                seed=tasks[index].seed,
            )
        )
    return Recording(source=tasks.source, episodes=tuple(found), choices=0 if world.real else world.actions)


def _taken(world: Environment, action_SA: np.ndarray) -> np.ndarray:
    """What the environment makes of a draw beyond its bounds, which a critic would otherwise learn as another action."""
    low, high = (np.array(limit, np.float32) for limit in world.limits)
    return np.clip(action_SA, low, high) if world.real else action_SA
