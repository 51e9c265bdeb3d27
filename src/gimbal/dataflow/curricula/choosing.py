"""Common base of curricula that dispatch the best of all tasks instead of the next one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Float

from gimbal.dataflow.base import AbstractCurriculum, Progress
from gimbal.dataflow.success import SuccessModel, outcomes
from gimbal.environments.base import AbstractTasks
from gimbal.ops import philox
from gimbal.records import VISIT, Group, Task

MOST_CANDIDATES = 100_000  # each is scored for each task that is given out
LAPSE = 8  # steps after which nobody waits for a task's group any longer: it was lost


class AbstractChooser(AbstractCurriculum):
    """Dispatches the candidate with the highest score whose group is not in flight; ties are broken at random.

    Candidates are all tasks, or a ``pool`` of them resampled at each step. Each is chosen once a step, also where filters drop groups
    and others take their places, and not while its group of an earlier step is out; only if none is left do they come again, those
    that are back first. Scores may be noisy; the noise is fixed within a step, so the highest log w + Gumbel noise are samples by the
    weights w without replacement.
    """

    def __init__(self, name: str, tasks: AbstractTasks, seed: int, pool: int) -> None:
        if (pool or len(tasks)) > MOST_CANDIDATES:
            raise ValueError(
                f"{name} would score {pool or len(tasks):,} tasks for each that it gives out, and scores at most {MOST_CANDIDATES:,}: "
                "curriculum.pool=4096 takes so many at random in each step, tasks.size=4096 has no more"
            )
        self.name, self.tasks, self.seed, self.pool = name, tasks, seed, pool
        self.now = 0
        self.ids: dict[int, str] = {}  # of the tasks given out so far, by their place
        self.places: dict[str, int] = {}
        self.out: dict[int, int] = {}  # places that are out, and since which step
        self.visits: dict[int, int] = {}
        self.given: list[float] = []  # scores of what was given out since the last step
        # Their places: the noise is the same within a step, so a group that a filter drops would let its task win again.
        self.chosen: set[int] = set()
        self._deal()

    @abstractmethod
    def score(self, ids: Sequence[str | None], noise: np.random.Generator) -> Float[np.ndarray, " P"]:
        """Of each candidate; None was never given out. ``noise`` is the same whenever it is asked within a step."""

    @abstractmethod
    def learn(self, group: Group) -> None:
        """From a finished group of a task that it gave out."""

    def next(self) -> Task:
        score_P = self.score([self.ids.get(place) for place in self.candidates], philox(self.seed, "noise", self.now))
        back = [n for n, place in enumerate(self.candidates) if place not in self.out]
        fresh = [n for n in back if self.candidates[n] not in self.chosen]
        # Of equals the first: they are shuffled.
        best = max(fresh or back or range(len(self.candidates)), key=lambda n: score_P[n])
        place = self.candidates[best]
        task = self.tasks[place]
        if visit := self.visits.get(place, 0):
            task = replace(task, columns={**task.columns, VISIT: visit})
        self.ids[place], self.places[task.id] = task.id, place
        self.out[place], self.visits[place] = self.now, visit + 1
        self.chosen.add(place)
        self.given.append(float(score_P[best]))
        return task

    def observe(self, group: Group) -> None:
        if group.task.id in self.places:
            self.out.pop(self.places[group.task.id], None)
        self.learn(group)

    def step(self, progress: Progress) -> None:
        self.now = progress.version
        self.out = {place: since for place, since in self.out.items() if self.now - since < LAPSE}
        self.given, self.chosen = [], set()
        self._deal()

    def _deal(self) -> None:
        """The candidates of this step, in an order of its own. They follow from (seed, step), and are not saved."""
        size = len(self.tasks)
        if not size:
            raise ValueError("there are no tasks; a curriculum needs at least one")
        cards = philox(self.seed, "candidates", self.now)
        dealt = cards.permutation(size) if not 0 < self.pool < size else cards.choice(size, self.pool, replace=False)
        self.candidates: list[int] = dealt.tolist()

    def metrics(self) -> dict[str, float]:
        """``seen``: tasks given out so far, of all. ``score``: the mean of what those of the present step were chosen by.

        It is in the curriculum's own unit: of samplers by weights the highest log weight + Gumbel noise, which may be negative.
        """
        score = {f"{self.name}/score": float(np.mean(self.given))} if self.given else {}
        return {f"{self.name}/seen": len(self.ids) / len(self.tasks), **score}

    def state_dict(self) -> dict[str, Any]:
        return {
            "now": self.now,
            "ids": dict(self.ids),
            "out": dict(self.out),
            "visits": dict(self.visits),
            "given": list(self.given),
            "chosen": sorted(self.chosen),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.now, self.ids, self.out = state["now"], dict(state["ids"]), dict(state["out"])
        self.visits, self.given = dict(state["visits"]), list(state["given"])
        self.chosen = set(state["chosen"])
        self.places = {task: place for place, task in self.ids.items()}
        self._deal()


class AbstractSuccessChooser(AbstractChooser):
    """A chooser that scores by a ``SuccessModel`` of the tasks; ``reward`` is the name of its reward, or ""."""

    def __init__(
        self, name: str, tasks: AbstractTasks, seed: int, *, pool: int, model: SuccessModel, reward: str
    ) -> None:
        super().__init__(name, tasks, seed, pool)
        self.model, self.reward = model, reward

    def learn(self, group: Group) -> None:
        self.model.visit(group.task.id, outcomes(group, self.reward))

    def step(self, progress: Progress) -> None:
        super().step(progress)
        self.model.step()

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "model": self.model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self.model.load_state_dict(state["model"])


def gumbel(noise: np.random.Generator, weight_P: Float[np.ndarray, " P"]) -> Float[np.ndarray, " P"]:
    """log w + Gumbel noise: the highest are a sample by the weights, without replacement. Weight 0 gives -inf."""
    noise_P = noise.gumbel(size=len(weight_P))
    with np.errstate(divide="ignore"):
        return np.log(weight_P) + noise_P
