"""Recorded episodes of control as tasks: those of a data set in Minari's layout, or of one that is made here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gimbal.config.classes import nearest
from gimbal.environments.base import AbstractTasks
from gimbal.environments.behaviors import MADE
from gimbal.environments.recording import DATA, METADATA, Recording, located, read, source_of
from gimbal.environments.tables import digest
from gimbal.records import Task

DATASET, EPISODE = "dataset", "episode"  # columns of a task: which episode of which data it is


@dataclass(frozen=True, kw_only=True)
class Minari(AbstractTasks):
    """Task i is recorded episode i of ``dataset``: a directory in Minari's layout, the name of a data set that Minari keeps
    (``MINARI_DATASETS_PATH``, else ``~/.minari/datasets``), or one that is made here by a rule and a seed:
    ``gimbal/pendulum/random-v0``, ``medium-v0``, ``expert-v0``, ``mixed-v0``, ``gimbal/maze/stitch-v0``,
    ``gimbal/merging/plans-v0``, ``gimbal/merging/random-v0``, ``gimbal/line/partings-v0`` of several agents, ``gimbal/cart/hidden-v0``,
    ``gimbal/dock/demos-v0``, and ``gimbal/cart/bounds-v0``, which tells costs (``infos/cost``). Nothing is downloaded.

    An episode that ends with a termination has nothing after it; one that is cut off has, and values look beyond its end.
    """

    dataset: str = "gimbal/pendulum/mixed-v0"

    def __len__(self) -> int:
        return len(self.recording.episodes)

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"episode {index} of {len(self)}")
        columns = {DATASET: self.dataset, EPISODE: index}
        return Task(id=f"{self.dataset}/{index}", source=self.recording.source, columns=columns)

    @property
    def recording(self) -> Recording:
        return recording(self.dataset)

    @property
    def source(self) -> str:
        """The environment of the episodes, which ``Gymnasium(environment=...)`` opens; "" if the data do not say."""
        return MADE[self.dataset][0] if self.dataset in MADE else source_of(_place(self.dataset))

    def digests(self) -> dict[str, str]:
        if self.dataset in MADE:
            return {}
        place = _place(self.dataset)
        return {str(place / name): digest(place / name) for name in (DATA, METADATA)}


def recording(dataset: str) -> Recording:
    """The episodes of this name, read or made once in a process."""
    if dataset in MADE:
        return _made(dataset)
    place = _place(dataset)
    return _read(place, (place / DATA).stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _made(dataset: str) -> Recording:
    return MADE[dataset][1]()


@lru_cache(maxsize=4)
def _read(place: Path, changed: int) -> Recording:
    return read(place)


def _place(dataset: str) -> Path:
    kept = Path(os.environ.get("MINARI_DATASETS_PATH") or Path.home() / ".minari" / "datasets")
    for directory in (Path(dataset).expanduser(), kept / dataset):
        if (found := located(directory)) is not None:
            return found.resolve()
    raise ValueError(
        f"there is no data set {dataset}{nearest(dataset, MADE)}: give a directory that holds {DATA}, the name of one in {kept}, or "
        f"one of {', '.join(MADE)}"
    )
