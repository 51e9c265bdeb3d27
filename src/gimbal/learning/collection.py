"""So many samples of each state and action as are asked for, in few steps: where transitions are not known."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from gimbal.environments.tabular import Problem

CLOSE = 1e-6  # of values, in steps


@dataclass(frozen=True, kw_only=True)
class Collected:
    """How many steps it took, and how often each action led from each state where."""

    steps: int
    visits_SAS: Int[np.ndarray, "S A S"]


@dataclass(frozen=True, kw_only=True)
class ShortestPaths:
    """Walks to the nearest state of which samples lack, by what it has seen so far, and takes them there (GOSPRL, arXiv:2007.06437).

    With N(s, a) visits so far, P their frequencies and G the states that lack samples of an action, the expected steps to G are

        V(s) = 0 in G, else min_a 1 + N(s, a) / (``prior`` + N(s, a)) P(s, a).V

    as if each action had led to G ``prior`` times besides: so what was never tried is one step away, and is tried. In G it takes the
    action that lacks most. Plans are made anew when G changes, and when an action's visits have doubled. The end of an episode is a
    step to the first state, and the horizon of the problem is not kept.

    - one sample of one state: the shortest path to it, as far as it is known.
    - many visits: the expected steps of the best way, exactly.
    - ``prior`` to infinity: all states are one step away, and it goes anywhere.

    Confidence: partial; ours: this optimism in place of the paper's bonuses, so that its bound on the steps does not carry over.
    """

    prior: float = 1.0
    most: int = 1_000_000

    def __post_init__(self) -> None:
        if not 0 < self.prior < math.inf or self.most < 1:
            raise ValueError(
                f"ShortestPaths has prior {self.prior} (visits, above 0) and most {self.most} (steps, at least 1)"
            )

    def __call__(
        self, problem: Problem, wanted_SA: Int[np.ndarray, "S A"], generator: np.random.Generator
    ) -> Collected:
        """``wanted_SA`` is how many samples of each action in each state. ValueError where a state cannot be come back to, and after
        ``most`` steps."""
        transition_SAS = without_ends(problem)
        _refuse(transition_SAS, wanted_SA)
        visits_SAS, state, steps = np.zeros(transition_SAS.shape, int), 0, 0
        planned = np.zeros(0), np.zeros(0, bool)  # the visits and the goals of the last plan
        action_S = np.zeros(len(wanted_SA), int)
        while ((lacking_SA := wanted_SA - (count_SA := visits_SAS.sum(-1))) > 0).any():
            if steps == self.most:
                raise ValueError(
                    f"{int(lacking_SA.clip(0).sum())} samples are lacking after {steps} steps: raise most, or ask for less"
                )
            goal_S = (lacking_SA > 0).any(1)
            if goal_S[state]:
                action = int(lacking_SA[state].argmax())
            else:
                if not np.array_equal(goal_S, planned[1]) or (count_SA >= 2 * planned[0].clip(1)).any():
                    action_S, planned = self.paths(visits_SAS, goal_S)[1], (count_SA, goal_S)
                action = int(action_S[state])
            following = int(generator.choice(len(wanted_SA), p=transition_SAS[state, action]))
            visits_SAS[state, action, following] += 1
            state, steps = following, steps + 1
        return Collected(steps=steps, visits_SAS=visits_SAS)

    def paths(
        self, visits_SAS: Float[np.ndarray, "S A S"] | Int[np.ndarray, "S A S"], goal_S: Bool[np.ndarray, " S"]
    ) -> tuple[Float[np.ndarray, " S"], Int[np.ndarray, " S"]]:
        """The expected steps to a goal from each state, and the action to take there."""
        likely_SAS = visits_SAS / (self.prior + visits_SAS.sum(-1, keepdims=True))  # the rest leads to a goal
        value_S = np.zeros(len(goal_S))
        while True:
            cost_SA = 1 + likely_SAS @ value_S
            new_S = np.where(goal_S, 0.0, cost_SA.min(1))
            if np.abs(new_S - value_S).max() < CLOSE:
                return new_S, cost_SA.argmin(1)
            value_S = new_S


def without_ends(problem: Problem) -> Float[np.ndarray, "S A S"]:
    """Its transitions, where an end leads to the first state."""
    transition_SAS = problem.transition_SAS.copy()
    transition_SAS[..., 0] += 1 - transition_SAS.sum(-1)
    return transition_SAS


def _refuse(transition_SAS: Float[np.ndarray, "S A S"], wanted_SA: Int[np.ndarray, "X Y"]) -> None:
    if wanted_SA.shape != transition_SAS.shape[:2] or (wanted_SA < 0).any():
        raise ValueError(
            f"wanted_SA has the shape {wanted_SA.shape} and its least number is {wanted_SA.min()}; it is a number of samples, 0 or "
            f"above, of each of {transition_SAS.shape[1]} actions in each of {len(transition_SAS)} states"
        )
    leads_SS = np.eye(len(wanted_SA), dtype=bool) | (transition_SAS > 0).any(1)
    for _ in range(len(leads_SS).bit_length()):
        leads_SS = (leads_SS.astype(int) @ leads_SS.astype(int)) > 0
    met_S = leads_SS[0]
    for state in np.flatnonzero(wanted_SA.any(1)).tolist():
        if not leads_SS[met_S, state].all():
            raise ValueError(
                f"state {state} is not reached from every state that is: once there, it could not come back for more. Ask for no "
                "samples of it"
            )
