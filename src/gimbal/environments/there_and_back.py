"""An environment that is never reset: whoever has reached its goal goes back to where it began."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Float

from gimbal.environments.docking import BEGINNING, Docking
from gimbal.environments.goals import ACHIEVED, DESIRED


class ThereAndBack(gymnasium.Wrapper):
    """``env``, which has goals by gymnasium's convention, without resets: ways to its own goal and ways back to ``home`` follow each
    other (forward-backward, as in SERL, arXiv:2401.16013; there by two policies, here by one that sees its goal).

    A way is an episode. It is terminated where the goal is reached, that is where ``compute_reward`` pays ``reached``, and truncated
    after ``limit`` steps; the next one begins where it ended, with the other goal (``info["begins"]``). A step pays ``compute_reward``
    of the goal that is wanted, less ``reached``: 0 where it is reached, and below 0 elsewhere, so that short ways are better. Where the
    environment itself cuts an episode off, the way goes on; where it ends one, it is reset.

    - ``back`` off: all ways lead to the environment's own goal, still without resets. Who has got there has nothing left to do.
    - ``resets``: each way begins at a reset and leads there: ordinary episodes, as an evaluation plays them.
    """

    def __init__(
        self, env: gymnasium.Env, home: Any, reached: float, limit: int, *, back: bool = True, resets: bool = False
    ) -> None:
        super().__init__(env)
        space = env.observation_space
        goal = space.spaces.get(DESIRED) if isinstance(space, gymnasium.spaces.Dict) else None
        if goal is None or not callable(getattr(env.unwrapped, "compute_reward", None)):
            raise ValueError(
                f"ThereAndBack gives ways their goals, and {env} has none: it needs {DESIRED} in what is observed, and "
                "compute_reward(achieved_goal, desired_goal, info)"
            )
        self.home = np.asarray(home, np.float32)
        if self.home.shape != goal.shape or limit < 1:
            raise ValueError(
                f"ThereAndBack has home {home} and limit {limit}: home is a goal like {goal}, and limit counts steps, at least 1"
            )
        self.reached, self.limit, self.back, self.resets = reached, limit, back, resets
        self.own, self.wanted = np.zeros_like(self.home), np.zeros_like(self.home)
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        seen, info = self.env.reset(seed=seed, options=options)
        self.own = self.wanted = np.array(seen[DESIRED], np.float32)
        self.steps = 0
        return seen, info

    def compute_reward(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return self.env.get_wrapper_attr("compute_reward")(achieved_goal, desired_goal, info) - self.reached

    def compute_terminated(self, achieved_goal: Any, desired_goal: Any, info: Any) -> Any:
        return np.asarray(self.compute_reward(achieved_goal, desired_goal, info)) >= 0

    def step(self, action: Float[np.ndarray, " A"]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        seen, _, over, _, info = self.env.step(action)
        self.steps += 1
        reward = float(self.compute_reward(seen[ACHIEVED], self.wanted, {}))
        there, late = reward >= 0, self.steps >= self.limit
        shown, info = {**seen, DESIRED: self.wanted.copy()}, {**info, "is_success": there}
        if (there or late) and not over:
            self.steps = 0
            if self.back:
                self.wanted = self.home if self.wanted is self.own else self.own
            if not self.resets:
                info["begins"] = {**seen, DESIRED: self.wanted.copy()}
        return shown, reward, bool(over or there), bool(late and not there and not over), info


def docking(*, back: bool = True, resets: bool = False) -> ThereAndBack:
    """A point that goes to its dock and back, at most 40 steps each way."""
    return ThereAndBack(Docking(), home=BEGINNING, reached=1.0, limit=40, back=back, resets=resets)


def docking_one_way() -> ThereAndBack:
    """It is never asked to go back."""
    return docking(back=False)


def docking_resets() -> ThereAndBack:
    """It is reset after each way."""
    return docking(resets=True)
