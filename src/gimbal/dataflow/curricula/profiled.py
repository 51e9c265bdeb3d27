"""Profiles each task with the initial policy, which decides whether, when and with how many rollouts it is trained on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gimbal.composition import DROPS_PROFILES, Composition, Refusal, Verdict
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumSpec
from gimbal.dataflow.budgets.fixed import COLUMN
from gimbal.dataflow.success import outcomes
from gimbal.environments.base import AbstractTasks
from gimbal.ops import philox
from gimbal.records import VISIT, Group, Task

PROFILE = "profile"  # column of a task that is only tried


@dataclass(frozen=True, kw_only=True)
class Profiled(AbstractCurriculumSpec):
    """Profiles tasks with the initial policy, then trains from easy to hard in groups of the inverse pass rate (sGPO,
    arXiv:2606.08854).

    First ``samples`` rollouts of every task, in order, which filters.ProfileOnly keeps from training; s is the share of right ones. A
    task with s >= ``solved`` is excluded, and one with s = 0 stays with probability ``keep_failed``. The rest comes in epochs, easiest
    first, shuffled within ``bands`` of s, in groups of 1 / max(s, 1 / (2 samples)) rollouts, rounded, from ``least`` to
    ``most`` (the column ``num_generations``; ``most`` at s = 0).

    - all s equal and above 0: groups of one size in a random order.
    - ``solved`` above 1 and ``keep_failed`` 1: nothing is left out.

    The profile is sampled before the first step, all by the initial policy, and counts toward the run's tokens: samples x tasks
    rollouts. It is never renewed. If too little of it is back when the first step needs tasks, tasks are tried twice. max_empty_batches
    must be above tasks / prompts_per_step, because the whole profile is dropped in a row. Outcomes are the reward ``name``, or the
    whole score if it is empty, clipped to [0, 1].

    Published: the three uses of the profile, the inverse law, the order.

    Confidence: abstract only; ours: ``samples`` 8, the bounds of the group, the share of failed tasks that stay, the bands.
    """

    names_rewards: ClassVar[tuple[str, ...]] = ("name",)

    samples: int = 8
    solved: float = 1.0
    keep_failed: float = 0.25
    least: int = 2
    most: int = 32
    bands: int = 4
    name: str = ""

    def __post_init__(self) -> None:
        if self.samples < 1 or self.bands < 1 or not 0 <= self.keep_failed <= 1 or not 1 <= self.least <= self.most:
            raise ValueError(
                f"Profiled has samples {self.samples} and bands {self.bands} (1 or more), keep_failed {self.keep_failed} (a share from "
                f"0 to 1), and groups from {self.least} to {self.most}: let 1 <= least <= most"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> ProfiledCurriculum:
        return ProfiledCurriculum(self, tasks, seed)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(DROPS_PROFILES):
            yield Refusal("Profiled tries every task before it trains on any: put ProfileOnly() first in filters")

    def size(self, share: float) -> int:
        """Rollouts of a task that was right in this share of its profile."""
        exact = self.most if share == 0 else 1 / max(share, 1 / (2 * self.samples))
        return min(max(round(exact), self.least), self.most)


class ProfiledCurriculum(AbstractCurriculum):
    """The live half of ``Profiled``."""

    def __init__(self, spec: Profiled, tasks: AbstractTasks, seed: int) -> None:
        if len(tasks) == 0:
            raise ValueError("there are no tasks; a curriculum needs at least one")
        self.spec, self.tasks, self.seed = spec, tasks, seed
        self.tried = 0  # profiles given out
        self.epoch = 0
        self.places: dict[str, int] = {}
        self.shares: dict[int, float] = {}  # what is known of tasks, by place
        self.queue: list[int] = []  # of this epoch, the next one last

    def next(self) -> Task:
        if self.tried >= len(self.tasks) and not self.queue:
            self.queue = self._epoch()
        if not self.queue:
            place, visit = self.tried % len(self.tasks), self.tried // len(self.tasks)
            task = self.tasks[place]
            self.tried, self.places[task.id] = self.tried + 1, place
            return _with(task, {PROFILE: True, COLUMN: self.spec.samples, VISIT: visit})
        task = self.tasks[self.queue[-1]]
        share = self.shares[self.queue.pop()]
        return _with(task, {COLUMN: self.spec.size(share), VISIT: len(self.tasks) + self.epoch})

    def observe(self, group: Group) -> None:
        if group.task.columns.get(PROFILE):
            self.shares[self.places[group.task.id]] = float(outcomes(group, self.spec.name).mean())

    def _epoch(self) -> list[int]:
        """What is trained on in the next epoch, the hardest first, as far as profiles are back; [] if there is nothing."""
        spec, order = self.spec, philox(self.seed, "epoch", self.epoch)
        known = sorted(place for place, share in self.shares.items() if share < spec.solved)
        kept = [p for p in known if self.shares[p] or philox(self.seed, "keep", p).random() < spec.keep_failed]
        self.epoch += bool(kept)
        kept = [kept[n] for n in order.permutation(len(kept))]
        return sorted(kept, key=lambda place: int(self.shares[place] * spec.bands))

    def metrics(self) -> dict[str, float]:
        """``known``: of the tasks; ``kept``: of those known, before failed ones are thinned out; ``pass_rate``: of the profile."""
        if not self.shares:
            return {}
        kept = sum(share < self.spec.solved for share in self.shares.values()) / len(self.shares)
        mean = sum(self.shares[place] for place in sorted(self.shares)) / len(self.shares)
        found = {"known": len(self.shares) / len(self.tasks), "kept": kept, "pass_rate": mean}
        return {f"Profiled/{name}": value for name, value in found.items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "counts": [self.tried, self.epoch],
            "places": dict(self.places),
            "shares": dict(self.shares),
            "queue": list(self.queue),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.tried, self.epoch = state["counts"]
        self.places, self.shares = dict(state["places"]), dict(state["shares"])
        self.queue = list(state["queue"])


def _with(task: Task, columns: Mapping[str, Any]) -> Task:
    return replace(task, columns={**task.columns, **columns})
