"""Where a run's parts live: generation and scoring in this process or in others.

A runtime neither sees nor changes the method. It gives the pipeline an engine and a scorer; everything else
is the same objects.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gimbal.composition import AbstractPart
from gimbal.engines.base import AbstractEngine, AbstractSampler
from gimbal.policies.base import AbstractPolicy
from gimbal.records import Drop, Group
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import score


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A scored group; ``lost`` counts the rollouts that left it, by reason."""

    index: int
    outcome: Group | Drop
    lost: Counter[str] = field(default_factory=Counter)


class AbstractScorer(ABC):
    """Groups in, verdicts out, each group once."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """Groups submitted whose verdict has not been taken."""

    @abstractmethod
    def submit(self, group: Group) -> None: ...

    @abstractmethod
    def ready(self, *, wait: bool) -> Scored | None:
        """One verdict, if there is one. ``wait``: there is nothing else to do, so it may take a moment. Raises RewardError."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a run asks of its runtime. ``opened`` are its ``rewards`` in this process; other processes open their own."""

    engine: AbstractSampler
    policy: AbstractPolicy
    rewards: Sequence[AbstractReward]
    opened: Sequence[AbstractReward]
    in_order: bool  # verdicts come in the order of submission
    threads: int
    note: Callable[[str], None] = lambda sentence: None  # tells the user


@dataclass(frozen=True, kw_only=True)
class Host:
    """The live parts that a runtime provides."""

    engine: AbstractEngine
    scorer: AbstractScorer
    close: Callable[[], None] = lambda: None
    # What chance decided since the last call; None where it decides nothing.
    schedule: Callable[[], list[Any]] | None = None
    metrics: Callable[[], Mapping[str, float]] = dict  # of a step, beside those of every runtime


class AbstractRuntimeSpec(AbstractPart, ABC):
    """The saved, frozen choice of a runtime."""

    stands_still: ClassVar[bool] = False  # whether nothing is generated while the learner steps

    @abstractmethod
    def open(self, wanted: Wanted) -> Host: ...


def short(value: Any) -> Any:
    """``ray`` and ``local`` as their constructors; anything else unchanged."""
    known = {"local": "Local()", "ray": "Ray()"}
    return known.get(value.lower(), value) if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class Local(AbstractRuntimeSpec):
    """One process, one task after another: two runs with the same seed are bit-identical."""

    stands_still: ClassVar[bool] = True

    def open(self, wanted: Wanted) -> Host:
        engine = wanted.engine.start(wanted.policy)
        return Host(engine=engine, scorer=AtOnce(wanted.opened), close=engine.close, metrics=engine.metrics)


class AtOnce(AbstractScorer):
    """A group is scored as it is submitted; one on which a reward raises was not submitted."""

    def __init__(self, rewards: Sequence[AbstractReward]) -> None:
        self.rewards = rewards
        self.done: deque[Scored] = deque()

    @property
    def pending(self) -> int:
        return len(self.done)

    def submit(self, group: Group) -> None:
        lost: Counter[str] = Counter()
        self.done.append(Scored(index=group.index, outcome=score(group, self.rewards, lost), lost=lost))

    def ready(self, *, wait: bool) -> Scored | None:
        return self.done.popleft() if self.done else None
