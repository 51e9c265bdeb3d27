"""A learned world as an environment: a policy acts in what a model of recorded steps says comes next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from jaxtyping import Float

from gimbal.environments.minari import Minari, recording
from gimbal.environments.tables import digest_of_model
from gimbal.policies.planned import world_in


def digests(model: str, dataset: str) -> dict[str, str]:
    """Of what it is made of, which a run in it leaves alone: its weights, and the episodes that it begins in."""
    return {str(Path(model).resolve()): digest_of_model(Path(model)), **Minari(dataset=dataset).digests()}


class LearnedWorld(gymnasium.Env):
    """The world that a run of ``world``, ``pets`` or another planning policy saved in the directory ``model``, for any recipe of real
    actions: ``tasks.environment=runs/RUN/model:DATASET``.

    An episode begins at a recorded step of ``dataset``, any as likely as any other (DIAMOND, arXiv:2405.12399, begins in recorded
    segments too; here one observation is all of the state). Each step is drawn from one member of the ensemble, which is drawn for that
    step, so that (o' - o, r) ~ N(mean_m(o, a), std_m(o, a)^2), m any of 1..M. After ``horizon`` steps the episode is truncated, not
    terminated: values look beyond it. It is terminated where the world says so (``world.ends``).

    - A recorded environment that is known exactly, without noise: the environment itself, begun at recorded steps.

    ``begin`` (an option of ``reset``) is where it begins instead. ``@horizon=20`` behind the name sets the horizon (50).

    Not shown here: worlds of pixels, which DIAMOND draws by a diffusion model from several frames. Choices are no actions here, as
    planning policies take none.
    """

    def __init__(self, model: str, dataset: str) -> None:
        self.horizon, self.steps = 50, 0
        self._world, bound = world_in(model)
        self._seen_O = np.zeros(0, np.float32)
        sizes, data = self._world.spec, recording(dataset)
        own = f"{sizes.observations} observations, {sizes.actions} real actions"
        if data.interface != own:
            raise ValueError(
                f"the world in {model} has {own}, and {dataset} has {data.interface}: begin in episodes of the environment that the "
                "world was learned from"
            )
        self._begins_KO = np.concatenate([episode.observation_SO[:-1] for episode in data.episodes])
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (sizes.observations,), np.float32)
        self.action_space = gymnasium.spaces.Box(-bound, bound, (sizes.actions,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " O"], dict[str, Any]]:
        super().reset(seed=seed)
        if self.horizon < 1:
            raise ValueError(f"LearnedWorld has horizon {self.horizon}; it counts the steps of an episode, at least 1")
        drawn_O = self._begins_KO[self.np_random.integers(len(self._begins_KO))]
        self._seen_O, self.steps = np.array((options or {}).get("begin", drawn_O), np.float32), 0
        return self._seen_O.copy(), {}

    def step(
        self, action: Float[np.ndarray, " A"]
    ) -> tuple[Float[np.ndarray, " O"], float, bool, bool, dict[str, Any]]:
        drawn = self.np_random.random(1), self.np_random.standard_normal((1, len(self._seen_O) + 1))
        given = (self._seen_O[None], np.asarray(action)[None], *drawn)
        next_KO, reward_K, ended_K = self._world.step(*(torch.from_numpy(x.astype(np.float32)) for x in given))
        self._seen_O, self.steps = next_KO[0].numpy(), self.steps + 1
        return self._seen_O.copy(), float(reward_K[0]), bool(ended_K[0]), self.steps >= self.horizon, {}
