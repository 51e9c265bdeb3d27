"""Checkpoints: complete, atomic, checked.

    checkpoints/step_000025/
        model/           what `from_pretrained` (or the policy's own loader) reads
        state.pt         everything else: learner, pipeline, engine in flight, proof, counters
        recipe.yaml      of the run at this step
        manifest.json    size and digest of every file; written last

A checkpoint is written under a temporary name and renamed when all of it is on disk, so a kill or a full disk at any moment
leaves the previous one good. One whose digests do not match is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from gimbal.config import RECIPE_FILE
from gimbal.engines.base import Finished, Request
from gimbal.policies.base import AbstractPolicy
from gimbal.records import AbstractDecisions, Group, Rollout, Sampling, Task

MANIFEST = "manifest.json"


class CheckpointError(ValueError):
    """A checkpoint could not be written, or is not what was written."""


def save(directory: Path, step: int, policy: AbstractPolicy, state: Mapping[str, Any], keep: int) -> Path:
    """Write checkpoints/step_N under ``directory`` and remove all but the newest ``keep`` (at least 1)."""
    root = directory / "checkpoints"
    final, partial = root / f"step_{step:06d}", root / f".partial_{step:06d}"
    try:
        shutil.rmtree(partial, ignore_errors=True)
        (partial / "model").mkdir(parents=True)
        policy.save(partial / "model")
        if (recipe := directory / RECIPE_FILE).is_file():
            shutil.copyfile(recipe, partial / RECIPE_FILE)
        torch.save(dict(state), partial / "state.pt")
        files = sorted(path for path in partial.rglob("*") if path.is_file())
        manifest = {str(path.relative_to(partial)): _digest(path) for path in files}
        (partial / MANIFEST).write_text(json.dumps({"step": step, "files": manifest}, indent=1))
        for path in [*files, partial / MANIFEST]:
            _sync(path)
        if final.exists():
            shutil.rmtree(final)
        partial.rename(final)
        _sync(root)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError of its zip writer.
        shutil.rmtree(partial, ignore_errors=True)
        previous = newest(directory)
        kept = f"{previous} is untouched, and the run can be resumed" if previous else "there is no earlier one"
        raise CheckpointError(f"the checkpoint of step {step} could not be written ({error}); {kept}") from error
    for old in all_of(directory)[: -max(1, keep)]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def load(checkpoint: Path, device: torch.device | None = None) -> dict[str, Any]:
    """The saved state, after every file's digest was checked."""
    try:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        for name, digest in manifest["files"].items():
            if _digest(checkpoint / name) != digest:
                raise CheckpointError(
                    f"{checkpoint / name} is not what was written: the checkpoint is corrupted. Remove {checkpoint} and "
                    "resume again from the one before it"
                )
        with torch.serialization.safe_globals([Request, Finished, Rollout, Group, Task, Sampling, *_decision_types()]):
            return torch.load(checkpoint / "state.pt", map_location=device, weights_only=True)
    except (OSError, KeyError, json.JSONDecodeError) as error:
        raise CheckpointError(
            f"{checkpoint} is not a complete checkpoint ({error}). Remove it and resume again from the one before it"
        ) from error


def all_of(directory: Path) -> list[Path]:
    """The run's finished checkpoints, oldest first."""
    return sorted(path.parent for path in (directory / "checkpoints").glob(f"step_*/{MANIFEST}"))


def newest(directory: Path) -> Path | None:
    found = all_of(directory)
    return found[-1] if found else None


def _decision_types() -> list[type]:
    """Every family's record of decisions that has been imported: whatever a live policy may have put into the state."""
    return list(AbstractDecisions.__subclasses__())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
