"""Goals by gymnasium's convention: what was reached, what is wanted, and what an environment says of any two such."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from gimbal.config.own import LARGEST, told
from gimbal.config.parts import broken
from gimbal.ops.deadline import DESK, Hung, Late

ACHIEVED, DESIRED, PLAIN = "achieved_goal", "desired_goal", "observation"  # names in what is observed
DEADLINE = 60.0  # seconds of a call of a rule
Judges = Callable[..., Any]  # (achieved_goal, desired_goal, info) -> a reward, or whether it ends there


class Silent(ValueError):
    """A rule did not answer."""


class Goals:
    """Where the two goals lie in the flat observation, and the environment's own rules for a pair of them.

    ``compute_reward(achieved_goal, desired_goal, info)`` must be what ``step`` pays for the goal that was reached by the step;
    ``compute_terminated``, where there is one, what it says of an end. They are called with an empty ``info``: for many pairs at once
    where that gives the same numbers as pair by pair, which the first call finds out, else pair by pair.
    """

    def __init__(self, source: str, achieved: slice, desired: slice, reward: Judges, terminated: Judges | None) -> None:
        self.source, self.achieved, self.desired = source, achieved, desired
        self._reward, self._terminated = reward, terminated
        self._at_once: dict[str, bool] = {}  # by the name of a rule

    def reward(
        self, achieved_KG: Float[np.ndarray, "K G"], desired_KG: Float[np.ndarray, "K G"]
    ) -> Float[np.ndarray, " K"]:
        return self._told("compute_reward", self._reward, achieved_KG, desired_KG)

    def terminated(
        self, achieved_KG: Float[np.ndarray, "K G"], desired_KG: Float[np.ndarray, "K G"]
    ) -> Bool[np.ndarray, " K"] | None:
        """None where goals have no say in ends."""
        if self._terminated is None:
            return None
        return self._told("compute_terminated", self._terminated, achieved_KG, desired_KG) != 0

    def _told(self, name: str, rule: Judges, achieved_KG: np.ndarray, desired_KG: np.ndarray) -> np.ndarray:
        together = None
        if self._at_once.get(name, True):
            together = self._answered(name, lambda: _together(rule, achieved_KG, desired_KG))
        if together is not None and name in self._at_once:
            return self._usual(name, together)
        try:
            one_by_one = self._answered(
                name, lambda: [rule(one_G, other_G, {}) for one_G, other_G in zip(achieved_KG, desired_KG, strict=True)]
            )
        except (Silent, Hung):
            raise
        except Exception as error:  # whatever a user's rule raises, told with the line of his file
            raise ValueError(f"{broken(f'{self.source}.{name}', error)}; it is called with an empty info") from error
        found_K = _numbers(one_by_one)
        if found_K.shape != (len(achieved_KG),):
            raise ValueError(
                f"{self.source}.{name} returned {told(one_by_one[0])}; it must return one number for a pair of goals"
            )
        self._at_once[name] = together is not None and np.array_equal(together, found_K)
        return self._usual(name, found_K)

    def _answered(self, name: str, work: Callable[[], Any]) -> Any:
        """In another thread, which can be abandoned."""
        try:
            return DESK.call(f"{self.source}.{name}", lambda call: work(), deadline=DEADLINE).result()
        except Late as error:
            raise Silent(f"{self.source}.{name} did not answer within {DEADLINE:g} s: let it return sooner") from error

    def _usual(self, name: str, found_K: np.ndarray) -> np.ndarray:
        """Learned from, any other number would spoil every weight."""
        if len(wrong := found_K[~(np.abs(found_K) <= LARGEST)]):
            raise ValueError(
                f"{self.source}.{name} returned {wrong[0]:g}; it must be a finite number of size {LARGEST:g} at most"
            )
        return found_K


def _together(rule: Judges, achieved_KG: np.ndarray, desired_KG: np.ndarray) -> np.ndarray | None:
    """What a rule says of all pairs in one call; None where it takes a pair at a time."""
    try:
        found = _numbers(rule(achieved_KG, desired_KG, {}))
    except Exception:  # whatever a rule for one pair raises of many; what is wrong shows when it is asked for one
        return None
    return found if found.shape == (len(achieved_KG),) else None


def _numbers(found: Any) -> np.ndarray:
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError):  # no numbers, or of several shapes
        return np.zeros(())
