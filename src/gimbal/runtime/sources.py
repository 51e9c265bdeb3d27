"""The user's own files in a run, checked on a resume: a tool edited meanwhile makes it a different run."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from gimbal import config
from gimbal.config.own import is_own
from gimbal.environments.base import AbstractTasks
from gimbal.environments.tables import digest, digest_of_model
from gimbal.learning.updates.policy_gradient import AbstractPolicyGradient
from gimbal.policies.token import CausalLM


def digests(run: Any) -> dict[str, str]:
    """Of each file that the class of a part or a function comes from, or that a part names (mine.py:score, rows.jsonl)."""
    own = {str(path): digest(path) for path in sorted(set(_files(run))) if path.is_file()}
    for part in config.paths(run).values():
        own |= part.digests() if isinstance(part, AbstractTasks) else {}
    return own | _reference(run)


def _reference(run: Any) -> dict[str, str]:
    """Of the model that parts pull towards, which no checkpoint holds."""
    update = run.learns
    if not any(model.first and model.optimizer is None for model in update.models().values()):
        return {}
    given = update.reference if isinstance(update, AbstractPolicyGradient) else None
    spec = given or run.policy
    place = Path(spec.path if isinstance(spec, CausalLM) else vars(spec).get("model") or "nowhere")
    return {str(place.resolve()): digest_of_model(place)} if place.is_dir() else {}


def edited(saved: Mapping[str, Any] | None, now: Mapping[str, str]) -> list[str]:
    """The message on a resume: files changed since the start of the process that wrote the checkpoint."""
    before = {} if saved is None else saved["sources"]
    names = [Path(path).name for path, digest in now.items() if before.get(path, digest) != digest]
    if not names:
        return []
    which = f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} edited since the checkpoint"
    return [f"{which}: it is no longer the same run, so do not compare it as one"]


def _files(run: Any) -> Iterator[Path]:
    for value in config.paths(run).values():
        if isinstance(value, str | Path):
            plain = str(value).partition("@")[0]  # Class@length=0.5: one of a family of environments
            place, _, name = plain.rpartition(":")
            path = Path(place if name.isidentifier() and place.endswith(".py") else value).expanduser()
            if path.suffix in (".py", ".jsonl", ".json"):
                # resolve() raises RuntimeError where links go in a circle; reading says it better.
                yield Path(os.path.realpath(path))
        elif is_dataclass(value) or callable(value):
            module = inspect.getmodule(type(value) if is_dataclass(value) else value)
            file = None if module is None else vars(module).get("__file__")
            if file and is_own(str(Path(file).resolve())):
                yield Path(file).resolve()
