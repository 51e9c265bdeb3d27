"""A run's files besides its checkpoints, and reading them: metrics.jsonl, summary.json, stopped.json. Nothing here imports torch."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from gimbal import durable
from gimbal.config import read_file
from gimbal.config.own import fault, told

METRICS, ROLLOUTS, SUMMARY, SCHEDULE = "metrics.jsonl", "rollouts.jsonl", "summary.json", "schedule.jsonl"
LAST, BEST = "model", "best"  # directories of models that it saves in addition to its checkpoints
FILM = "film.webp"  # an episode of its policy
STOPPED = "stopped.json"  # why a run ended before its last step; written only then
# The only metrics, and fields of rollouts, that may differ between two runs of one recipe and seed.
CLOCKED = ("time/", "perf/", "pool/")
DRAWN = ("tokens", "env_steps", "denoising_steps", "decisions")  # the count so far, in the unit of the policy's family


class JsonLines:
    """A file with one JSON object per line, each with its ``step``; flushed line by line, and safe to cut after a kill.

    It is pure ASCII: model text cannot end a line early, and a kill cannot leave half a character.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        durable.append(self.path, json.dumps(finite(row), allow_nan=False) + "\n")

    def read(self) -> list[dict[str, Any]]:
        """Every whole line (see ``_whole``); of metrics.jsonl every one of a step and its figures."""
        return self._rows(self.path.read_bytes()) if durable.regular(self.path) else []

    def _rows(self, lines: bytes) -> list[dict[str, Any]]:
        rows = _whole(lines)
        return [row for row in rows if _of_figures(row)] if self.path.name == METRICS else rows

    def since(self, offset: int) -> tuple[list[dict[str, Any]], int]:
        """The whole lines from this byte on, and the byte where the rest begins, to follow a growing file."""
        if not durable.regular(self.path):
            return [], offset
        with self.path.open("rb") as file:
            file.seek(offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        return self._rows(whole), offset + len(whole) + len(newline)

    def cut(self, size: int) -> None:
        """Keep the first ``size`` bytes. This creates a new file, so that a reader following it notices."""
        if durable.regular(self.path):
            durable.written(self.path, partial(_copy, self.path, size))


def _copy(source: Path, size: int, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        while chunk := old.read(min(1 << 20, size - new.tell())):
            new.write(chunk)


def _whole(lines: bytes) -> list[dict[str, Any]]:
    """The objects; a line torn by a kill or damaged since is left out, and the others stay."""
    rows = []
    for line in lines.splitlines():
        with contextlib.suppress(ValueError, RecursionError):  # the last of a line nested beyond all measure
            row = json.loads(line)
            rows += [row] if isinstance(row, dict) else []
    return rows


def _of_figures(row: Mapping[str, Any]) -> bool:
    """Whether a line of metrics is what a run writes: a step, and numbers that a float holds, or null."""
    step = row.get("step")
    return isinstance(step, int) and step >= 0 and all(value is None or _number(value) for value in row.values())


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not (isinstance(value, int) and abs(value) > sys.float_info.max)


def lost(rows: Sequence[Mapping[str, Any]], steps: int | None = None) -> str:
    """Which of the ``steps`` of a run (None: of those until its last line) have no line, and how many; "" if none is lost."""
    there = {row["step"] for row in rows if isinstance(row.get("step"), int)}
    steps = max(there, default=0) if steps is None else steps
    if not (gone := steps - sum(1 <= step <= steps for step in there)):
        return ""
    first = next(step for step in count(1) if step not in there)  # an edited step may be above all that could be listed
    return f"{METRICS} has no line of {gone} of {steps} steps (the first of them is step {first}): lines were lost or edited"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """summary.json: what a run did, learned and cost. ``before`` and ``after`` hold the held-out evaluation's figures."""

    recipe: str
    seed: int
    steps: int
    seconds_training: float
    tokens_generated: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    max_age: int
    mean_discrepancy: float | None  # mean |p - p'| between sampler and trainer, averaged over steps; None: not measured
    peak_memory_mb: float
    drops: Mapping[str, int] = field(default_factory=dict)  # groups, by reason
    undone: int = 0  # steps that the closed loop undid

    def save(self, path: Path) -> None:
        durable.write(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> Summary:
        try:
            saved = read_file(path)
            known = {item.name: saved[item.name] for item in fields(cls) if item.name in saved}
            _check(known)
            return cls(**known)
        except (TypeError, ValueError) as error:
            way = f"remove it, and gimbal train --resume {shlex.quote(str(path.parent))} writes it again"
            raise ValueError(f"{path} is no complete summary of a run ({error}): {way}") from error


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


def cost(summary: Summary, drawn: str = "decisions generated") -> list[str]:
    gap = summary.mean_discrepancy
    told = "" if gap is None else f"probabilities of sampler and trainer {gap:.4f} apart on average, "
    steps = f"{summary.steps} step{'s' * (summary.steps != 1)}"
    lines = [
        f"{steps}, {summary.tokens_generated:,} {drawn} in {duration(summary.seconds_training)} of "
        f"training; maximum staleness {summary.max_age}, {told}"
        f"peak memory {summary.peak_memory_mb:.0f} MB"
    ]
    if summary.undone:
        lines.append(f"steps undone by the closed loop: {summary.undone}")
    single = "rollouts/"  # before a reason: rollouts without their group
    for what, drops in (
        ("groups", {reason: n for reason, n in summary.drops.items() if not reason.startswith(single)}),
        ("rollouts", {reason[len(single) :]: n for reason, n in summary.drops.items() if reason.startswith(single)}),
    ):
        if drops:
            lines.append(f"{what} dropped: " + ", ".join(f"{count} {reason}" for reason, count in drops.items()))
    return lines


def _check(summary: Mapping[str, Any]) -> None:
    """TypeError where an edited file holds another kind of value."""
    numbers = {name: value for name, value in summary.items() if name != "recipe"}
    for name in {"before", "after", "drops"} & numbers.keys():
        if not isinstance(figures := numbers.pop(name), Mapping):
            raise TypeError(f"{name} is {told(figures)}, not figures by name")
        numbers |= {f"{name}.{key}": value for key, value in figures.items()}
    for name, value in numbers.items():
        if value is not None and not _number(value):
            raise TypeError(f"{name} is {told(value)}, not a number")


def stopped(step: int, error: Exception) -> dict[str, Any]:
    """stopped.json: the finished steps, the kind of error, and its message."""
    return {"step": step, "error": type(error).__name__, "sentence": " ".join((fault(error) or str(error)).split())}


def read_stopped(path: Path) -> Mapping[str, Any]:
    """The contents of a run's stopped.json, as written by ``stopped``."""
    found = read_file(path)
    if missing := [key for key in stopped(0, Exception()) if key not in found]:
        raise ValueError(f"{path} does not say why a run stopped: it has no {', '.join(missing)}; you can delete it")
    return found


def drawn(row: Mapping[str, Any]) -> float:
    """Decisions sampled until this step, from its line in metrics.jsonl."""
    return float(next((value for name in DRAWN if (value := row.get(name)) is not None), 0))


def unit(rows: Iterable[Mapping[str, Any]]) -> str:
    """What the decisions of these runs are called, by a line of metrics.jsonl of each: as console and report do, and "decisions" where
    runs of several families are beside each other."""
    names = {next((name for name in DRAWN if name in row), DRAWN[0]) for row in rows}
    return (names.pop() if len(names) == 1 else DRAWN[-1]).replace("_", " ")


def deterministic(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without clock values: two runs of one recipe and seed agree in the rest, bit for bit."""
    return {name: value for name, value in row.items() if not name.startswith(CLOCKED)}


def finite(value: Any) -> Any:
    """Null for NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value
