"""The share of solved groups to train on, from how much of their reasoning is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from gimbal.composition import KEEPS_SOLVED, Advice, Composition, Verdict
from gimbal.config.own import started
from gimbal.dataflow.base import AbstractCurriculum, AbstractCurriculumAround, AbstractCurriculumSpec
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.base import AbstractTasks
from gimbal.records import Episode, Group, Task

COLUMN = "keep_solved"


@dataclass(frozen=True, kw_only=True)
class SolvedShare(AbstractCurriculumSpec):
    """Sets the share of solved groups in a batch by how little of the correct reasoning is redundant (DECS, arXiv:2509.25827).

    After every ``every`` groups: share <- clip(share + gain (economy - economy before), 0, solved), with economy the mean of
    necessary / steps over right rollouts (1 without steps) and solved the share of groups all of whose rollouts are right. Each
    task's column ``keep_solved`` gets the probability min(1, share mixed / ((1 - share) solved)) with which filters.KeepSolved keeps a
    solved group, so that these make up the share of kept groups. A rollout is right if the reward ``right``, or its whole score if that
    is empty, reaches ``threshold``. ``order`` chooses the tasks.

    - ``gain`` = 0: no solved group is kept.
    - no right rollout among the groups: the economy is unchanged.

    Published: ``gain`` 0.2, share 0 and economy 0.5 at the beginning, a step's groups at a time.

    Confidence: verified; ours: the probability is passed with tasks, so it acts on groups dispatched afterwards.
    """

    names_rewards: ClassVar[tuple[str, ...]] = (
        "necessary",
        "steps",
        "right",
    )

    order: AbstractCurriculumSpec = Epochs()
    gain: float = 0.2
    start_economy: float = 0.5
    every: int = 16
    necessary: str = "necessary"
    steps: str = "steps"
    right: str = ""
    threshold: float = 1.0

    def __post_init__(self) -> None:
        if self.gain < 0 or self.every < 1:
            raise ValueError(
                f"SolvedShare has gain {self.gain}, 0 (keep none) or above, and every {self.every}, 1 group or more"
            )

    def start(self, tasks: AbstractTasks, seed: int) -> SolvedShareCurriculum:
        return SolvedShareCurriculum(self, started(self.order, AbstractCurriculum, tasks, seed))

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.doing(KEEPS_SOLVED):
            yield Advice("SolvedShare sets which solved groups KeepSolved lets through: use both or neither")


class SolvedShareCurriculum(AbstractCurriculumAround):
    """The live half of ``SolvedShare``."""

    def __init__(self, spec: SolvedShare, order: AbstractCurriculum) -> None:
        self.spec, self.order = spec, order
        self.share, self.keep, self.economy = 0.0, 0.0, spec.start_economy
        self._forget()

    def next(self) -> Task:
        task = self.order.next()
        return replace(task, columns={**task.columns, COLUMN: self.keep})

    def observe(self, group: Group) -> None:
        self.order.observe(group)
        right = [rollout for rollout in group.episodes if self._earned(rollout) >= self.spec.threshold]
        self.groups += 1
        self.solved += len(right) == len(group.episodes)
        self.mixed += 0 < len(right) < len(group.episodes)
        self.right += len(right)
        self.needed += sum(self._economy(rollout) for rollout in right)
        if self.groups == self.spec.every:
            self._move()
            self._forget()

    def _move(self) -> None:
        economy = self.needed / self.right if self.right else self.economy
        moved = self.share + self.spec.gain * (economy - self.economy)
        self.share, self.economy = min(max(moved, 0.0), self.solved / self.groups), economy
        wanted, there = self.share * self.mixed, (1 - self.share) * self.solved
        self.keep = 0.0 if self.share == 0 else min(1.0, wanted / there) if there > 0 else 1.0

    def _forget(self) -> None:
        self.groups, self.solved, self.mixed, self.right, self.needed = 0, 0, 0, 0, 0.0

    def _earned(self, rollout: Episode) -> float:
        return rollout.scores[self.spec.right] if self.spec.right else rollout.earned

    def _economy(self, rollout: Episode) -> float:
        steps = rollout.scores[self.spec.steps]
        return rollout.scores[self.spec.necessary] / steps if steps else 1.0

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order.state_dict(), **{name: getattr(self, name) for name in STATE}}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.order.load_state_dict(state["order"])
        for name in STATE:
            setattr(self, name, state[name])


STATE = ("share", "keep", "economy", "groups", "solved", "mixed", "right", "needed")
