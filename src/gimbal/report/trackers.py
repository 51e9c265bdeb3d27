"""Log a run's metrics to TensorBoard, Weights & Biases or trackio in addition to its files. A failing tracker never stops a run."""

from __future__ import annotations

import json
import secrets
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gimbal import durable
from gimbal.config import RECIPE_FILE, nearest, read_file

PROJECT = "gimbal"  # unless WANDB_PROJECT names another
FILE = "tracked.json"  # in a run's directory: the names of its trackers, for a resume
IDENTITY = "wandb.id"  # of the run at wandb, for a resume
KEPT = ("tensorboard", "wandb", IDENTITY)  # what trackers keep in a run's directory
NONE = "none"


class AbstractTracker(ABC):
    """``log`` after every step, in order; a resumed run logs some steps again, with the same figures."""

    @abstractmethod
    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class TensorBoard(AbstractTracker):
    """Event files under ``directory``/tensorboard."""

    def __init__(self, directory: Path, recipe: Mapping[str, Any], step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(directory / "tensorboard"), purge_step=step + 1 if step else None)
        self.writer.add_text(
            "recipe", f"    {(directory / RECIPE_FILE).read_text(encoding='utf-8')}".replace("\n", "\n    ")
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class Wandb(AbstractTracker):
    """A run named after this directory; WANDB_MODE, WANDB_PROJECT and wandb's other variables apply. A resume continues it."""

    def __init__(self, directory: Path, recipe: Mapping[str, Any], step: int) -> None:
        import os

        import wandb

        identity = directory / IDENTITY
        if not identity.is_file():
            durable.write(identity, secrets.token_hex(4))
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=directory.name,
            id=identity.read_text(encoding="utf-8"),
            resume="allow",
            dir=str(directory),
            config=dict(recipe),
            settings=wandb.Settings(console="off", quiet=True),
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def close(self) -> None:
        self.run.finish()


class Trackio(AbstractTracker):
    """A local trackio run named after this directory (`trackio show`); TRACKIO_DIR and trackio's other variables apply."""

    def __init__(self, directory: Path, recipe: Mapping[str, Any], step: int) -> None:
        import trackio

        self.run = trackio.init(
            project=PROJECT,
            name=directory.name,
            config=dict(recipe),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self.run.log(dict(metrics), step=step)

    def close(self) -> None:
        self.run.finish()


KNOWN: dict[str, Callable[[Path, Mapping[str, Any], int], AbstractTracker]] = {
    "tensorboard": TensorBoard,
    "wandb": Wandb,
    "trackio": Trackio,
}


def asked(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The trackers in ``tensorboard,wandb``, each known and installed (else ValueError, ModuleNotFoundError); ``none`` means none.

    None means not given: a resumed run keeps its trackers.
    """
    if names is None:
        return None
    words = [word.strip() for word in (names.split(",") if isinstance(names, str) else names)]
    found = tuple(dict.fromkeys(word for word in words if word != NONE))
    for name in found:
        if name not in KNOWN:
            raise ValueError(
                f"there is no tracker {name or repr(name)}{nearest(name, KNOWN)}; choose from {', '.join(KNOWN)}, or {NONE}"
            )
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return found


def of_run(directory: Path, asked: Sequence[str] | None) -> tuple[str, ...]:
    """A run's trackers: the requested ones, which are saved with it; if none are given, its earlier ones.

    ``Trackers`` leaves out one that is no longer installed, with a message.
    """
    file = directory / FILE
    if asked is None:
        names = read_file(file).get("trackers") if file.is_file() else ()
        return tuple(name for name in KNOWN if name in names) if isinstance(names, list) else ()
    if asked or file.is_file():
        durable.write(file, json.dumps({"trackers": list(asked)}) + "\n")
    return tuple(asked)


def forget(directory: Path) -> None:
    """Remove what trackers of an earlier run have kept here: a new one is none of its sessions."""
    for path in (directory / name for name in KEPT):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


class Trackers:
    """The requested trackers. One that fails, at the start or later, is left out from then on, with one message."""

    def __init__(self, names: Sequence[str], directory: Path, step: int, note: Callable[[str], None]) -> None:
        self.note = note
        self.live: dict[str, AbstractTracker] = {}
        recipe = read_file(directory / RECIPE_FILE)["run"] if names else {}
        for name in names:
            try:
                self.live[name] = KNOWN[name](directory, recipe, step)
            except Exception as error:  # a tracker can raise anything; it must not stop the run
                self._lost(name, error)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, tracker in list(self.live.items()):
            try:
                tracker.log(step, metrics)
            except Exception as error:
                del self.live[name]
                self._lost(name, error)

    def close(self) -> None:
        for name, tracker in self.live.items():
            try:
                tracker.close()
            except Exception as error:
                self._lost(name, error)
        self.live.clear()

    def _lost(self, name: str, error: Exception) -> None:
        cause = " ".join(str(error).split())[:200] or type(error).__name__
        self.note(f"{name} failed and is no longer used: {cause}; the run continues, and metrics.jsonl has everything")
