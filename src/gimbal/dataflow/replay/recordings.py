"""Single decisions of a data set that is there from the first step, and stays as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, Judge
from gimbal.dataflow.replay.corrected_plans import CorrectedPlans
from gimbal.dataflow.replay.paths import paths, unread_path
from gimbal.dataflow.replay.recorded import recorded, unlike
from gimbal.dataflow.replay.transitions import FRESH, MOVE, PATH, joined
from gimbal.environments.minari import DATASET, Minari, recording
from gimbal.ops import philox
from gimbal.records import Group, TrainBatch


@dataclass(frozen=True, kw_only=True)
class Recordings(AbstractStoreSpec):
    """Holds every decision of the data set that the tasks are of. Each learner step is ``moves`` moves of the weights, each by
    ``minibatch`` decisions, any as likely as any other.

    The episodes that come in one by one are of the same data, and nothing more is learned from them. All decisions are shown to
    running statistics once, before the first move. ``replay/passes`` is how many times over the data have been drawn.

    With ``path`` above 1 a decision is drawn with the steps that follow it, so many in all and fewer where its episode ends sooner, for
    a world that learns on its own rollouts (``ModelLearning``, ``WorldDenoising``).

    ``corrections`` puts better plans in place of recorded ones, once, before anything is drawn.
    """

    same_rows: ClassVar[bool] = False

    moves: int = 250
    minibatch: int = 128
    path: int = 1
    corrections: CorrectedPlans | None = None

    def __post_init__(self) -> None:
        if min(self.moves, self.minibatch, self.path) < 1:
            raise ValueError(
                f"Recordings has moves {self.moves}, minibatch {self.minibatch} and path {self.path}; each must be at least 1"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        learns = whole.run.learns
        if not isinstance(whole.run.tasks, Minari):  # of a mixture it would learn from whichever came first
            yield Refusal(
                "Recordings draws from recorded episodes of one data set, and the tasks are none: tasks='Minari(dataset=...)'; "
                "gimbal record A B DIRECTORY mixes two"
            )
        if not learns.off_policy:
            yield Refusal(
                "Recordings draws single decisions that another policy took, and this update learns from what its own policy drew: "
                "begin with iql, cql, td3_bc or bc"
            )
        elif learns.optimization.minibatches > 1 or learns.optimization.epochs > 1:
            yield Refusal(
                "Recordings says how often the weights move: store.moves, and leave optimization.minibatches and epochs at 1"
            )
        elif unread := unread_path(self.path, learns):
            yield Refusal(unread)
        for tasks in whole.all(Minari):
            yield from unlike(tasks, whole)

    def start(self, seed: int) -> RecordedRows:
        return RecordedRows(self, seed)


class RecordedRows(AbstractStore):
    """The rows, once an episode has told which data set they are of."""

    def __init__(self, spec: Recordings, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.dataset = ""
        self.rows: TrainBatch | None = None
        self.goes_on_K = torch.zeros(0, dtype=torch.bool)  # whether the next row is the next step of the same episode
        self.version = self.moves = 0
        self.shares: dict[str, float] = {}

    def join(self, groups: Sequence[Group], version: int, judge: Judge) -> list[Group]:
        self.version, self.dataset = version, groups[0].task.columns[DATASET]
        return list(groups)

    def take(self, fresh: TrainBatch) -> TrainBatch:
        if self.rows is None:
            data = recording(self.dataset)
            if self.spec.corrections is not None:
                data, self.shares = self.spec.corrections(data)
            self.rows, self.goes_on_K = recorded(data)
        rows, spec = self.rows, self.spec
        generator = philox("recordings", self.seed, self.moves)
        place_K = torch.from_numpy(generator.integers(rows.shape[0], size=spec.moves * spec.minibatch))
        number_K = torch.arange(self.moves, self.moves + spec.moves).repeat_interleave(spec.minibatch)
        drawn = rows.select(place_K).with_columns({MOVE: number_K})
        if spec.path > 1:
            drawn = drawn.with_columns({PATH: paths(rows, self.goes_on_K, place_K, spec.path, rows.shape[0])})
        if not self.moves:
            drawn = joined(drawn, rows.with_columns({MOVE: torch.full((rows.shape[0],), FRESH)}))
        self.moves += spec.moves
        # Of no version: what was recorded before the run is never old.
        return drawn.with_columns({"version_NS": torch.full_like(drawn.column("version_NS", self), self.version)})

    def metrics(self) -> dict[str, float]:
        if self.rows is None:
            return {}
        held = self.rows.shape[0]
        passes = self.moves * self.spec.minibatch / held
        told = {"held": float(held), "moves": float(self.moves), "passes": passes} | self.shares
        return {f"replay/{name}": value for name, value in told.items()}

    def state_dict(self) -> dict[str, Any]:
        """The data are read again where the run goes on; its digests say whether they are the same."""
        return {"moves": self.moves}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.moves = state["moves"]
