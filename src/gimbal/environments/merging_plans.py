"""A car that merges by plans of several steps."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from gimbal.environments.merging import BRAKE, FASTEST, PUSH, STEP, Merging, recorded, shown
from gimbal.environments.recording import RecordedEpisode, Recording

PLANS = "gimbal.environments.merging_plans:MergingPlans"
AHEAD = 8  # steps of a plan


class MergingPlans(gymnasium.Env):
    """``Merging`` whose action is a plan: the pushes of the next 8 steps, from -1 (the strongest brake) to 1 (the strongest push). The
    first ``latch`` of them (4) are played before another plan is asked for. The reward is the sum of what they earn.

    - ``latch`` = 1: only the first push of each plan is played.
    """

    def __init__(self) -> None:
        self.inside = Merging()
        self.observation_space = self.inside.observation_space
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (AHEAD,), np.float32)
        self.latch, self.logs, self.reacts = 4, self.inside.logs, self.inside.reacts

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float[np.ndarray, " 11"], dict[str, Any]]:
        super().reset(seed=seed)
        if self.latch not in range(1, AHEAD + 1):
            raise ValueError(
                f"MergingPlans.latch is {self.latch}; it is how many steps of a plan are played, from 1 to {AHEAD}"
            )
        self.inside.logs, self.inside.reacts = self.logs, self.reacts
        return self.inside.reset(seed=seed, options=options)

    def step(
        self, action: Float[np.ndarray, " 8"]
    ) -> tuple[Float[np.ndarray, " 11"], float, bool, bool, dict[str, Any]]:
        first, *rest = pushes_of(action[: self.latch]).tolist()
        seen, total, terminated, truncated, info = self.inside.go(first)
        for push in rest:
            if terminated or truncated:
                break
            seen, reward, terminated, truncated, info = self.inside.go(push)
            total += reward
        return seen, total, terminated, truncated, info

    def replanned(self, plan: Float[np.ndarray, " 8"], factor: float) -> Float[np.ndarray, " 8"]:
        """The plan from here at ``factor`` times its speeds, as far as the car can: v'_h = factor v_h after step h, where v_h is what
        the plan leads to. ``factor`` = 1: the same motion, without the pushes that do nothing at a speed's end, which cost."""
        wanted = speed = float(self.inside.scene.own[1])
        push_H = pushes_of(plan)
        for step, push in enumerate(push_H):
            wanted = np.clip(wanted + STEP * push, 0, FASTEST)
            push_H[step] = np.clip((factor * wanted - speed) / STEP, -BRAKE, PUSH)
            speed = np.clip(speed + STEP * push_H[step], 0, FASTEST)
        return shares_of(push_H)


def pushes_of(share_H: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"]:
    """In m/s^2, of numbers from -1, the strongest brake, to 1, the strongest push."""
    share_H = np.clip(share_H, -1, 1).astype(float)
    return np.where(share_H > 0, share_H * PUSH, share_H * BRAKE)


def shares_of(push_H: Float[np.ndarray, " H"]) -> Float[np.ndarray, " H"]:
    return np.where(push_H > 0, push_H / PUSH, push_H / BRAKE)


def plans(episodes: int = 200) -> Recording:
    """The logs of ``Merging``: at each step, what the merging car did in the next 8. Behind the end of a log it goes on as it is."""

    def one(number: int) -> RecordedEpisode:
        log = recorded(number)
        share_S = np.concatenate([shares_of(log.own_S), np.zeros(AHEAD)])
        steps = len(log.scenes) - 1
        sights = [shown(scene, push_C) for scene, push_C in zip(log.scenes, log.push_SC, strict=True)]
        place_S = np.array([scene.own[0] for scene in log.scenes])
        return RecordedEpisode(
            observation_SO=np.stack(sights),
            action_SA=np.stack([share_S[step : step + AHEAD] for step in range(steps)]).astype(np.float32),
            reward_S=(np.diff(place_S) / 10 - 0.0025 * log.own_S[:-1] ** 2).astype(np.float32),
            terminated=False,
            seed=number,
        )

    return Recording(source=f"{PLANS}@latch=1", episodes=tuple(one(number) for number in range(episodes)))
