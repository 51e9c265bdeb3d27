"""Selects tasks predicted to be partly solved, from the history of their states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from gimbal.dataflow.base import AbstractCurriculumSpec, Progress
from gimbal.dataflow.curricula.choosing import AbstractChooser
from gimbal.dataflow.success import kind, outcomes
from gimbal.environments.base import AbstractTasks
from gimbal.records import Group

STATES = ("failed", "mixed", "solved")


@dataclass(frozen=True, kw_only=True)
class StatePredicted(AbstractCurriculumSpec):
    """Tasks most likely to be solved in part, each a Markov chain of three states that its own record predicts (DPS,
    arXiv:2603.10887).

    States: all rollouts of a group fail, some do, none does. alpha[k, l] counts, Dirichlet, how often k followed l; P = alpha over the
    sums of its columns; pi is the predicted distribution of the state, mu the one a step earlier. The score of a task is
    pi[mixed] + ``curiosity`` times the entropy of pi. In each step, for a task whose group came in state e (one-hot), and for others:

        seen      alpha <- forget alpha + (1 - forget) prior + (e mu^T * P, normalised);  mu <- e;  pi <- P e
        not seen  alpha <- forget alpha + (1 - forget) prior;  mu <- pi;  pi <- P pi

    - ``forget`` = 1: a Bayesian Markov model that assumes a stationary chain.
    - ``prior`` -> infinity: every prediction is uniform, and so is the choice.
    - without evidence pi returns to uniform: tasks solved long ago are retested.

    Candidates are all tasks, or a ``pool`` of them resampled at each step (published: 32 batches). Outcomes are the reward ``name``, or
    the whole score if it is empty, clipped to [0, 1]; all equal and above 1/2 is solved, all equal and not above is failed. Tasks must
    repeat for this to work: tasks.size=256.

    Published: ``prior`` 1, ``forget`` 0.5, and 0.7 for a model of 1.5 B; no curiosity.

    Confidence: verified.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    prior: float = 1.0
    forget: float = 0.5
    curiosity: float = 0.0
    pool: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        if self.prior <= 0 or not 0 <= self.forget <= 1:
            raise ValueError(
                f"StatePredicted has prior {self.prior}, above 0, and forget {self.forget}, a share from 0 to 1"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> StatePredictedCurriculum:
        return StatePredictedCurriculum(self, tasks, seed)


class StatePredictedCurriculum(AbstractChooser):
    """The live half of ``StatePredicted``."""

    def __init__(self, spec: StatePredicted, tasks: AbstractTasks, seed: int) -> None:
        super().__init__(type(spec).__name__, tasks, seed, spec.pool)
        self.spec = spec
        self.chains: dict[str, Chain] = {}  # of the tasks seen so far, by their id
        self.came: set[str] = set()  # since the last step

    def score(self, ids: Sequence[str | None], noise: np.random.Generator) -> Float[np.ndarray, " P"]:
        fresh = Chain.begun(self.spec.prior)
        pi_P3 = np.array([self.chains.get(task or "", fresh).pi for task in ids])
        return pi_P3[:, 1] + self.spec.curiosity * -(pi_P3 * np.log(np.maximum(pi_P3, 1e-300))).sum(-1)

    def learn(self, group: Group) -> None:
        state = STATES.index(kind(outcomes(group, self.spec.name)))
        chain = self.chains.get(group.task.id) or Chain.begun(self.spec.prior)
        self.chains[group.task.id] = chain.seen(np.eye(3)[state], self.spec)
        self.came.add(group.task.id)

    def step(self, progress: Progress) -> None:
        super().step(progress)
        if progress.version:
            late = {task: chain.unseen(self.spec) for task, chain in self.chains.items() if task not in self.came}
            self.chains |= late
        self.came = set()

    def state_dict(self) -> dict[str, Any]:
        chains = {task: [part.tolist() for part in (c.alpha, c.mu, c.pi)] for task, c in self.chains.items()}
        return {**super().state_dict(), "chains": chains, "came": sorted(self.came)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.chains = {task: Chain(*map(np.array, parts)) for task, parts in state["chains"].items()}
        self.came = set(state["came"])


@dataclass(frozen=True)
class Chain:
    """The state of one task: ``alpha`` [3, 3], ``mu`` and ``pi`` [3]."""

    alpha: Float[np.ndarray, "3 3"]
    mu: Float[np.ndarray, " 3"]
    pi: Float[np.ndarray, " 3"]

    @classmethod
    def begun(cls, prior: float) -> Chain:
        return cls(np.full((3, 3), float(prior)), np.full(3, 1 / 3), np.full(3, 1 / 3))

    @property
    def moves(self) -> Float[np.ndarray, "3 3"]:
        """P[k, l]: the probability that k follows l."""
        return self.alpha / self.alpha.sum(0)

    def faded(self, spec: StatePredicted) -> Float[np.ndarray, "3 3"]:
        return spec.forget * self.alpha + (1 - spec.forget) * spec.prior

    def seen(self, state: Float[np.ndarray, " 3"], spec: StatePredicted) -> Chain:
        joint = np.outer(state, self.mu) * self.moves
        after = Chain(self.faded(spec) + joint / joint.sum(), state, self.pi)
        pi = after.moves @ state
        return Chain(after.alpha, state, pi / pi.sum())

    def unseen(self, spec: StatePredicted) -> Chain:
        after = Chain(self.faded(spec), self.pi, self.pi)
        return Chain(after.alpha, self.pi, after.moves @ self.pi)
