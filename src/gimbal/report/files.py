"""A run's files besides its checkpoints: metrics.jsonl, rollouts.jsonl, summary.json."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

import torch
from torch import Tensor

from gimbal import durable
from gimbal.config import read_file
from gimbal.config.own import fault, told
from gimbal.records import Episode, Group, Rollout, TrainBatch
from gimbal.report.metrics import passed

METRICS, ROLLOUTS, SUMMARY = "metrics.jsonl", "rollouts.jsonl", "summary.json"
FILM = "film.webp"  # an episode of its policy
STOPPED = "stopped.json"  # why a run ended before its last step; written only then
PICTURE, FRAME, FRAMES = 128, 32, 11  # pixels per side of a sample, and of a state on its path; states shown
MASKED = "\u00b7"  # a cell of a text that is still to be filled in
# The only metrics, and fields of rollouts, that may differ between two runs of one recipe and seed.
CLOCKED = ("time/", "perf/", "pool/")


class JsonLines:
    """A file with one JSON object per line, each with its ``step``; flushed line by line, and safe to cut after a kill.

    It is pure ASCII: model text cannot end a line early, and a kill cannot leave half a character.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: Mapping[str, Any]) -> None:
        durable.append(self.path, json.dumps(_finite(row), allow_nan=False) + "\n")

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


class RolloutFile:
    """Sampled rollouts with everything known about each decision, about ``max_bytes`` in a run of ``steps`` steps.

    Each step may fill its share of the bytes, so that the end of a long run is recorded like its beginning. The file never exceeds
    ``max_bytes`` plus one rollout (about 70 bytes per decision).
    """

    def __init__(self, path: Path, steps: int, max_bytes: int = 50_000_000, groups: int = 2) -> None:
        self.lines, self.steps, self.max_bytes, self.groups = JsonLines(path), max(1, steps), max_bytes, groups

    def append(
        self,
        step: int,
        groups: Sequence[Group],
        batch: TrainBatch,
        pieces: Callable[[Rollout], list[str]],
        *,
        judged: bool = True,
    ) -> None:
        """Write the first few groups that the step trained on: the batch's rows are their rollouts, in order. ``judged``: each
        solved its task or did not."""
        assert sum(len(group.rows) for group in groups) == batch.shape[0], "these groups are not the batch's"
        path = self.lines.path
        if path.exists() and path.stat().st_size > self.max_bytes * step / self.steps:
            return
        members = [(group, one, row) for group in groups[: self.groups] for one in group.episodes for row in one.rows]
        for at, (group, episode, row) in enumerate(members):
            if path.exists() and path.stat().st_size > self.max_bytes:
                return
            solved = {"solved": passed(row) if judged else None}
            self.lines.append(_described(step, group, row, batch, at, pieces(row)) | solved | _in_episode(episode, row))


def _described(
    step: int, group: Group, rollout: Rollout, batch: TrainBatch, row: int, pieces: list[str]
) -> dict[str, Any]:
    def rounded(name: str) -> list[float] | None:
        column_NS = getattr(batch, name)
        return None if column_NS is None else [round(x, 4) for x in column_NS[row, : rollout.length].tolist()]

    entropy_S = rollout.entropy_S
    counts_S = batch.mask_NS[row, : rollout.length]
    return {
        "step": step,  # the gradient was taken at version step - 1, which ages count from
        "group": group.index,
        "sample": rollout.sample,
        "task": rollout.task.id,
        "prompt": rollout.task.asked,
        "answer": rollout.task.answer,
        "text": rollout.text,
        "pieces": pieces,
        "stop": rollout.stop,
        "score": rollout.earned,
        "scores": dict(rollout.scores),
        "version": rollout.version_S.tolist(),
        "behavior": rounded("behavior_NS"),
        "proximal": rounded("proximal_NS"),
        "advantage": rounded("advantage_NS"),
        "entropy": None if entropy_S is None else [round(x, 4) for x in entropy_S.tolist()],
        "mask": None if bool(counts_S.all()) else counts_S.int().tolist(),  # null: every decision counts
        "part": _unless_zero(rollout.part_S),  # null: all response
        "turn": _unless_zero(rollout.turn_S),  # null: one turn
        "fork": rollout.fork,  # [sample it forked from, decisions it inherited]; null: it began at the prompt
    } | {name: x for name, x in (("image", picture(rollout)), ("path", strip(rollout) or filled(rollout, pieces))) if x}


def _in_episode(episode: Episode, row: Rollout) -> dict[str, Any]:
    """What a row records about its episode, if anything: its number, who acted, what its turns did in an environment."""
    number = next(at for at, one in enumerate(episode.rows) if one is row)
    found: dict[str, Any] = {"row": number} if len(episode.rows) > 1 else {}
    found |= {"role": row.role} if row.role else {}
    if episode.acts and row is episode.last:
        found |= {"acts": [[step.turn, step.calls, step.failed] for step in episode.acts]}
        found |= {"time/acts": [round(step.seconds, 4) for step in episode.acts]}
    return found


@runtime_checkable
class _Made(Protocol):
    """Decisions that make one sample together, from these states."""

    sample_ND: Tensor
    state_NXD: Tensor


def picture(rollout: Rollout) -> str | None:
    """A rollout's image as a data: URL of a PNG of at most ``PICTURE`` pixels per side; None if it made none."""
    made = rollout.decisions
    return _png(made.sample_ND[:1], PICTURE) if _images(made) else None


def strip(rollout: Rollout) -> str | None:
    """The states that led to it, from noise to the sample, side by side in one PNG: at most ``FRAMES``, including the first and
    last, each of at most ``FRAME`` pixels per side."""
    made = rollout.decisions
    if not _images(made):
        return None
    length = rollout.length
    shown = sorted({round(place * length / (FRAMES - 1)) for place in range(FRAMES)})
    return _png(made.state_NXD[0, shown], FRAME)


@runtime_checkable
class _Filled(Protocol):
    """Decisions that write the cells of one text, some in each pass."""

    place_NS: Tensor
    pass_NS: Tensor


def filled(rollout: Rollout, pieces: Sequence[str]) -> list[str] | None:
    """The text after each forward pass, of at most ``FRAMES`` including the first and last, with a dot for each cell that is masked
    still; None where texts are not filled in."""
    made = rollout.decisions
    if not isinstance(made, _Filled):
        return None
    place, at = made.place_NS[0].tolist(), made.pass_NS[0].tolist()
    cells, states = [MASKED] * (max(place) + 1), dict[int, str]()
    for one, cell, which in zip(pieces, place, at, strict=True):
        if cell >= 0:  # else it is a choice of cells
            cells[cell] = one
        states[which] = "".join(cells)
    shown = sorted({round(number * (len(states) - 1) / (FRAMES - 1)) for number in range(FRAMES)})
    return [states[number] for number in shown]


def _images(made: object) -> TypeGuard[_Made]:
    return isinstance(made, _Made) and made.sample_ND.ndim == 4 and made.sample_ND.shape[1] in (1, 3)


def _png(image_KCHW: Tensor, most: int) -> str:
    """A row of images with values from -1 to 1, as a data: URL."""
    from PIL import Image  # late: installed only with image models

    pixels_CHW = torch.cat([*((image_KCHW.float() + 1) * 127.5).clamp(0, 255).round().byte()], -1)
    pixels_HWC = pixels_CHW.permute(1, 2, 0).contiguous().cpu().numpy()
    image = Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC)
    image.thumbnail((most * len(image_KCHW), most))
    image.save(file := io.BytesIO(), "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _unless_zero(column_S: Tensor | None) -> list[int] | None:
    return None if column_S is None or not bool(column_S.any()) else column_S.tolist()


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


def deterministic(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without clock values: two runs of one recipe and seed agree in the rest, bit for bit."""
    return {name: value for name, value in row.items() if not name.startswith(CLOCKED)}


def _finite(value: Any) -> Any:
    """Null for NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
