"""rollouts.jsonl: samples of the rollouts that a run trained on, with everything known about each decision."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from torch import Tensor

from gimbal.ops.png import png
from gimbal.ops.scales import pictured
from gimbal.policies.commits import Commits, MaskedSampling
from gimbal.records import Episode, Group, Rollout, TrainBatch
from gimbal.report.files import JsonLines
from gimbal.report.metrics import passed

PICTURE, FRAME, FRAMES = 128, 32, 11  # pixels per side of a sample, and of a state on its path; states shown
MASKED = "\u00b7"  # a cell of a text that is still to be filled in


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
    } | {name: x for name, x in _made(rollout, pieces).items() if x}


def _made(rollout: Rollout, pieces: list[str]) -> dict[str, Any]:
    return {
        "image": picture(rollout),
        "path": strip(rollout) or filled(rollout, pieces),
        "point": point(rollout),
    }


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
    """A rollout's image as a data: URL of a PNG of at most ``PICTURE`` pixels per side, of one drawn in scales the finest; None if it
    made none."""
    made = rollout.decisions
    if _images(made):
        return png(made.sample_ND[:1], PICTURE)
    scales = rollout.sampling.blocks if isinstance(rollout.sampling, MaskedSampling) else ()
    if len(scales) < 2 or not isinstance(made, Commits) or (finest_D := pictured(rollout.text[-scales[-1] :])) is None:
        return None
    side = math.isqrt(scales[-1])
    return png(finest_D.reshape(1, 1, side, side), PICTURE) if side * side == len(finest_D) else None


def strip(rollout: Rollout) -> str | None:
    """The states that led to it, from noise to the sample, side by side in one PNG: at most ``FRAMES``, including the first and
    last, each of at most ``FRAME`` pixels per side."""
    made = rollout.decisions
    if not _images(made):
        return None
    length = rollout.length
    shown = sorted({round(place * length / (FRAMES - 1)) for place in range(FRAMES)})
    return png(made.state_NXD[0, shown], FRAME)


def point(rollout: Rollout) -> list[float] | None:
    """A rollout's sample where it is of two numbers; None where it is not."""
    made = rollout.decisions
    if not isinstance(made, _Made) or made.sample_ND[0].numel() != 2:
        return None
    return [round(x, 3) for x in made.sample_ND[0].flatten().tolist()]


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


def _unless_zero(column_S: Tensor | None) -> list[int] | None:
    return None if column_S is None or not bool(column_S.any()) else column_S.tolist()
