"""What is kept of what was drawn, and trained on again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import AT_SAMPLING, AbstractPart, Advice, Composition, Refusal, Verdict
from gimbal.dataflow.staleness import MaskStale, weighed
from gimbal.records import Drop, Episode, Group, Rollout, TrainBatch

REPLAYED = "replayed"  # ``origin`` of an episode that was trained on before, or was drawn for another group
Judge = Callable[[Group], Group | Drop]  # an unscored group of another run, as this run's model and rewards see it


class AbstractStore(ABC):
    """The live half of an ``AbstractStoreSpec``. It may give back what it kept at three places, in this order:

    - ``fix``: every scored group passes it before the filters, so that one which they would drop can be saved.
    - ``join``: the groups of a step, before they are packed. Whole groups come in here.
    - ``take``: the rows of a step, as they were packed.

    What comes back keeps the versions and log-probabilities that it was drawn with.
    """

    def fix(self, group: Group, latest: int) -> Group:
        """``latest``: the learner's version when the group will have been trained on at the latest."""
        return group

    def join(self, groups: Sequence[Group], version: int, judge: Judge) -> list[Group]:
        """``groups``: those that the rule of staleness released for the step that the learner takes from ``version``. Behind them
        come those that are trained on again, as ``replayed`` marks them."""
        return list(groups)

    def take(self, fresh: TrainBatch) -> TrainBatch:
        """The rows of this step. ``fresh``: those of its groups."""
        return fresh

    def learned(self, batch: TrainBatch, errors: Callable[[TrainBatch], Float[Tensor, " N"]]) -> None:
        """The learner has taken its step on this batch, and ``errors`` says how far off its values of each row are now."""
        return None

    @abstractmethod
    def metrics(self) -> dict[str, float]:
        """What it holds and what became of it, as ``replay/NAME``."""

    def claim(self, saved: Mapping[str, Any] | None, home: Path | None) -> None:
        """Called once, before a model is loaded. A ValueError where it keeps something outside of the run, and that is another run's.

        ``saved``: the state that it will continue from; ``home``: the directory of the run, if it has one."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        return None


class AbstractStoreSpec(AbstractPart, ABC):
    """A store as a recipe names it: a frozen dataclass. ``same_rows``: whether the rows trained on are those of the step's groups."""

    same_rows: ClassVar[bool] = True

    @abstractmethod
    def start(self, seed: int) -> AbstractStore: ...

    def sole(self) -> str:
        """Why only one run can have it as it is, and what another one would need; "" where any number can."""
        return ""

    def most_age(self, max_staleness: int) -> int | None:
        """How many versions old a decision may be that it has trained on, where the rule of staleness keeps to ``max_staleness``; None
        without a bound."""
        return max_staleness


def replaying(store: AbstractStoreSpec, whole: Composition) -> Iterator[Verdict]:
    """What every store says that gives old episodes back."""
    name = type(store).__name__
    if whole.run.learns.off_policy:
        return
    if not weighed(whole):
        yield Refusal(
            f"{name} trains again on what older versions drew, and nothing here weighs it by how it was drawn: set "
            "correction=TruncatedWeight() or anchor=Behavior()"
        )
    if whole.has(MaskStale):
        yield Refusal(
            f"MaskStale masks what is older than max_staleness, and that is what {name} brings back: staleness=Pace()"
        )
    for anchor in whole.doing(AT_SAMPLING):
        yield Refusal(
            f"{type(anchor).__name__} knows the versions of the last steps, and {name} lets decisions be older: anchor=Recompute()"
        )
    most = store.most_age(whole.run.max_staleness)
    if most is not None and most > whole.run.max_staleness:
        yield Advice(
            f"max_staleness holds for what is drawn; what {name} brings back may be up to {most} versions old (see staleness/max)"
        )


def replayed(episode: Episode, sample: int, origin: str = REPLAYED, *, alone: bool = False) -> Episode:
    """An episode of old in this place of a group. ``alone``: without the group that it was drawn in, so without the row that it split
    off; what it took over from that stays masked."""

    def moved(row: Rollout) -> Rollout:
        fork = row.fork
        if fork is not None and fork[0] == row.sample:  # off a row of its own
            fork = (sample, fork[1])
        elif alone:
            fork = None
        return replace(row, sample=sample, fork=fork)

    return replace(episode.map(moved), origin=origin)
