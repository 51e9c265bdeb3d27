"""Hindsight: steps that are drawn again as if another goal had been wanted, one that their episode did reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.environments.goals import Goals
from gimbal.environments.gym import Gymnasium, goals_of
from gimbal.policies.control import Steps
from gimbal.records import TrainBatch

ROUNDING = 1e-4  # by which a reward that is kept in float32 may be off
FLUKES = 0.01  # the share of steps whose goals, kept in float32, may lie on the other side of a threshold


@dataclass(frozen=True, kw_only=True)
class Hindsight(AbstractPart):
    """Hindsight experience replay (HER, arXiv:1707.01495). A drawn step (o, g, a, o') with the wanted goal g is, with a probability of
    ``goals`` / (``goals`` + 1), replaced by (o, g', a, o') with

        g' = achieved(o'_j),   r' = compute_reward(achieved(o'), g'),   ended' = compute_terminated(achieved(o'), g')

    where o'_j is what followed step j of the same episode, drawn anew each time. For step t of an episode whose last step is T - 1,
    ``strategy`` draws j

        future     from t to T - 1
        episode    from 0 to T - 1
        final      T - 1

    Rewards and ends are the environment's own (``environments.goals``); without ``compute_terminated`` an end stays what it was. An
    episode that was cut off stays cut off: that is no end. Of an episode whose beginning the buffer has overwritten, what is left
    counts. What came in itself stays as it was: other goals are written into draws alone.

    - ``goals`` = 0: the same bits as without it.
    - an episode of one step: the three strategies are one.

    Published: future, 4 goals (there as so many copies of each step, kept; here by chance at each draw, as in Stable-Baselines3).
    ``replay/relabelled``: the share of drawn steps whose reward is now another; at 0 hindsight has nothing to teach.
    ``replay/unlike``: the share of steps that were paid otherwise than ``compute_reward`` says; above 1 % the run stops.

    Confidence: verified (arXiv:1707.01495, section 4).
    """

    goals: int = 4
    strategy: Literal["future", "final", "episode"] = "future"

    def __post_init__(self) -> None:
        if self.goals < 0:
            raise ValueError(
                f"Hindsight.goals is {self.goals}; it is how many steps are drawn with another goal for each with its own, 0 or more"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        run = whole.run
        if not isinstance(run.tasks, Gymnasium) or run.tasks.sources:
            yield Refusal(
                "Hindsight asks one environment what other goals would have paid, and the tasks are of none or of several: set "
                "store.hindsight=none, or tasks='Gymnasium(environment=...)' without a grid"
            )
            return
        try:
            goals_of(run.tasks.source)
        except ValueError as error:
            yield Refusal(str(error))

    def start(self, source: str) -> Relabelling:
        return Relabelling(self, goals_of(source))


class Relabelling:
    """The live half of ``Hindsight``. It keeps nothing but the environment's rules: every draw follows from its generator."""

    def __init__(self, spec: Hindsight, goals: Goals) -> None:
        self.spec, self.goals = spec, goals

    def unlike(self, rows: TrainBatch) -> int:
        """How many of these were paid otherwise than the environment's rule says of their own goals."""
        steps = _steps(rows)
        own_KG = steps.final_NO[:, self.goals.desired].numpy()
        said_K = self.goals.reward(steps.final_NO[:, self.goals.achieved].numpy(), own_KG)
        return int((~np.isclose(rows.column("reward_NS", self)[:, 0].numpy(), said_K, ROUNDING, ROUNDING)).sum())

    def check(self, unlike: int, entered: int) -> None:
        if unlike > 1 + FLUKES * entered:
            raise ValueError(
                f"{self.goals.source}.step paid {unlike} of {entered} steps otherwise than its compute_reward says of the goal that "
                "each reached and the one it wanted, and hindsight would learn from both: let step pay compute_reward(achieved_goal, "
                "desired_goal, info) of what it returns, by the goals alone (info is empty when hindsight asks), or set "
                "store.hindsight=none"
            )

    def chosen(
        self, generator: np.random.Generator, place_K: Int[np.ndarray, " K"], last_E: Int[np.ndarray, " E"]
    ) -> tuple[Bool[np.ndarray, " K"], Int[np.ndarray, " K"]]:
        """Which of the drawn steps are given another goal, and from what followed which step it is taken.

        Places count from the oldest step that is held; ``last_E`` are those of the last steps of episodes, in order."""
        given_K = generator.random(len(place_K)) < self.spec.goals / (self.spec.goals + 1)
        episode_K = np.searchsorted(last_E, place_K)
        end_K = last_E[episode_K]
        if self.spec.strategy == "final":
            return given_K, end_K
        begin_K = place_K if self.spec.strategy == "future" else np.where(episode_K > 0, last_E[episode_K - 1] + 1, 0)
        return given_K, begin_K + np.floor(generator.random(len(place_K)) * (end_K - begin_K + 1)).astype(np.int64)

    def __call__(
        self, rows: TrainBatch, given_K: Bool[np.ndarray, " K"], reached_KG: Float[Tensor, "K G"]
    ) -> TrainBatch:
        """The rows, some of them with these goals, their rewards and ends."""
        steps, given = _steps(rows), torch.from_numpy(given_K.nonzero()[0])
        wanted_KG = reached_KG[given]
        met_KG = steps.final_NO[given][:, self.goals.achieved].numpy()
        before_NSO, after_NO = steps.observation_NSO.clone(), steps.final_NO.clone()
        before_NSO[given, 0, self.goals.desired] = wanted_KG
        after_NO[given, self.goals.desired] = wanted_KG
        reward_NS, ended_N = rows.column("reward_NS", self).clone(), steps.terminated_N
        reward_NS[given, 0] = torch.from_numpy(self.goals.reward(met_KG, wanted_KG.numpy())).to(reward_NS)
        if (ended_K := self.goals.terminated(met_KG, wanted_KG.numpy())) is not None:
            ended_N = ended_N.clone()
            ended_N[given] = torch.from_numpy(ended_K)
        decisions = replace(steps, observation_NSO=before_NSO, final_NO=after_NO, terminated_N=ended_N)
        return replace(rows, reward_NS=reward_NS, decisions=decisions)


def _steps(rows: TrainBatch) -> Steps:
    assert isinstance(rows.decisions, Steps), "decisions that are cut are steps of environments"
    return rows.decisions
