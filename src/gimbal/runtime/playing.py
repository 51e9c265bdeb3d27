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
from gimbal.policies.control import AbstractControlPolicy, Steps
from gimbal.records import Drop, Rollout
from gimbal.runtime.run import AbstractRun

TRIES, FEW = 4, 4  # episodes for one that is wanted; of fewer than these, as if so many were


def recorded(run: AbstractRun, policy: AbstractPolicy, *, episodes: int, seed: int, temperature: float) -> Recording:
    """``episodes`` whole ones of this policy in the run's environment, of other seeds than it was trained and evaluated on.

    One that breaks is left out (``Recording.left_out``) and another is played, up to ``TRIES`` times as many as are wanted.
    """
    if not isinstance(run.tasks, Gymnasium | Minari) or not run.tasks.source:
        raise ValueError(
            f"only episodes of environments can be recorded, but this run's tasks are {type(run.tasks).__name__}: give a run of a "
            "recipe such as sac or iql"
        )
    most = TRIES * max(episodes, FEW)
    tasks = Gymnasium(environment=run.tasks.source, seed=1_000_003 + seed, size=most)
    sampling = replace(run.sampling, temperature=temperature)
    world = Environment(tasks.source)
    found: list[RecordedEpisode] = []
    broken: list[str] = []
    with closing(Episodes(slots=min(16, episodes)).start(policy)) as engine:
        engine.load(0, policy.weights())
        while (missing := min(episodes, most - len(broken)) - len(found)) > 0:
            tried = range(len(found) + len(broken), len(found) + len(broken) + missing)
            for index in tried:
                engine.submit(Request(group=index, task=tasks[index], sample=0, sampling=sampling, seed=seed))
            ended = drained(engine)
            for index in tried:
                outcome = ended[index, 0].outcome
                if isinstance(outcome, Drop) or outcome.error:
                    broken.append(outcome.said if isinstance(outcome, Drop) else outcome.error)
                else:
                    found.append(_episode(world, policy, outcome.last, tasks[index].seed))
    if len(found) < episodes:
        raise ValueError(
            f"{len(broken)} of {len(found) + len(broken)} episodes of {tasks.source} broke, and {episodes} whole ones are wanted: "
            f"correct the environment, or ask for fewer (--episodes); the last broke by {broken[-1]}"
        )
    choices = 0 if world.real else world.actions
    return Recording(source=tasks.source, episodes=tuple(found), choices=choices, left_out=tuple(broken))


def _episode(world: Environment, policy: AbstractPolicy, row: Rollout, seed: int | None) -> RecordedEpisode:
    steps = row.decisions
    assert isinstance(steps, Steps) and isinstance(policy, AbstractControlPolicy)
    with torch.no_grad():
        done_SA = policy.done(steps.observation_NSO[0], steps.action_NSA[0])
    return RecordedEpisode(
        reward_S=row.reward_S.numpy(),
        action_SA=_taken(world, done_SA.cpu().numpy()),
        observation_SO=torch.cat([steps.observation_NSO[0], steps.final_NO]).numpy(),
        terminated=row.stop == "terminated",
        seed=seed,
    )


def _taken(world: Environment, action_SA: np.ndarray) -> np.ndarray:
    """What the environment makes of a draw beyond its bounds, which a critic would otherwise learn as another action."""
    low, high = (np.array(limit, np.float32) for limit in world.limits)
    return np.clip(action_SA, low, high) if world.real else action_SA
