"""Runs read from disk, and finished ones grouped into arms: the runs of one recipe, with seeds as repetitions.

Runs that cannot be compared are refused.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from gimbal.config import RECIPE_FILE, read_file
from gimbal.report.files import FILM, JsonLines, Summary, lost

# Fields of a run that change neither its behaviour nor its tasks.
BOOKKEEPING = (
    "threads",
    "checkpoint_every",
    "keep_checkpoints",
    "keep_every",
    "record_every",
    "record_mb",
    "held_out.every",
    "held_out.save_best",
)


@dataclass(frozen=True)
class RunOnDisk:
    """What a run has written so far. ``settings`` is its recipe, leaf by leaf under dotted paths, without the seed."""

    directory: Path
    rows: Sequence[Mapping[str, Any]]  # of metrics.jsonl, one per step
    summary: Summary | None
    recipe: str  # the text of recipe.yaml, "" if there is none
    settings: Mapping[str, Any]
    seed: int | None

    @classmethod
    def read(cls, directory: Path) -> RunOnDisk:
        ended, saved = directory / "summary.json", directory / RECIPE_FILE
        settings = _leaves(read_file(saved)) if saved.is_file() else {}
        return cls(
            directory=directory,
            rows=JsonLines(directory / "metrics.jsonl").read(),
            summary=Summary.load(ended) if ended.is_file() else None,
            recipe=saved.read_text(encoding="utf-8") if settings else "",
            seed=settings.pop("run.seed", None),
            settings=settings,
        )

    @property
    def name(self) -> str:
        return self.directory.name

    @property
    def film(self) -> str:
        """An episode of its policy as a data: URL, "" where none was filmed, or the run has gone on since."""
        made, lines = self.directory / FILM, self.directory / "metrics.jsonl"
        if not made.is_file() or (lines.exists() and lines.stat().st_mtime > made.stat().st_mtime):
            return ""
        return f"data:image/webp;base64,{base64.b64encode(made.read_bytes()).decode()}"

    @cached_property
    def metrics(self) -> dict[str, list[float | None]]:
        """Each metric's values, one per step; None is unknown."""
        names = sorted({name for row in self.rows for name in row if name != "step"})
        return {name: [row.get(name) for row in self.rows] for name in names}

    @property
    def own(self) -> dict[str, Any]:
        """The settings of the run itself, without bookkeeping."""
        found = {key.removeprefix("run."): value for key, value in self.settings.items() if key.startswith("run.")}
        return {key: value for key, value in found.items() if key not in BOOKKEEPING}

    @property
    def key(self) -> str:
        """Equal for seeds of one recipe, however they were recorded; a run without a recipe equals no other."""
        return json.dumps([self.settings.get("recipe"), self.own], default=str) if self.recipe else self.name


@dataclass(frozen=True, kw_only=True)
class EndedRun:
    """A finished run: its recipe as {dotted field: value}, its summary, its metrics step by step."""

    directory: Path
    recipe: str
    seed: int
    settings: Mapping[str, Any]
    every: int  # steps between evaluations; 0 means none during training
    summary: Summary
    rows: Sequence[Mapping[str, Any]]

    @property
    def held_out(self) -> dict[str, Any]:
        """What determines the score: the held-out tasks, the number of samples, the verifier. Not the engine: it may be the run's."""
        parts: tuple[str, ...] = ("held_out.", "rewards.0.")
        if "held_out" in self.settings:  # None: scored on what it trains on
            parts = ("held_out", "tasks.", "curriculum.", "rewards.")
        elif self.settings.get("held_out.rewards") is not None:
            parts = ("held_out.",)
        found = {key: value for key, value in self.settings.items() if key.startswith(parts)}
        return {key: value for key, value in found.items() if not key.startswith("held_out.engine")}


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One side of a comparison: its runs by evaluation, equally many for each, in the order of their seeds."""

    name: str
    runs: Sequence[Sequence[EndedRun]]  # [evaluation][seed]

    @property
    def all_runs(self) -> list[EndedRun]:
        return [run for runs in self.runs for run in runs]


def read(directory: Path) -> EndedRun:
    """Raises ValueError unless the run has ended."""
    run = RunOnDisk.read(directory)
    if not run.recipe:
        raise ValueError(f"there is no file {directory / RECIPE_FILE}")
    if run.summary is None:
        raise ValueError(
            f"{directory} is not finished ({len(run.rows)} of {run.own['steps']} steps are recorded); "
            f"finish it with gimbal train --resume {directory}, or leave it out"
        )
    if damage := lost(run.rows, run.summary.steps):
        raise ValueError(f"{directory}: {damage}; put the file back, or leave the run out")
    if not run.rows:
        raise ValueError(f"{directory} has no finished step, so there is nothing to compare")
    return EndedRun(
        directory=directory,
        recipe=str(run.settings.get("recipe", run.name)),
        seed=run.seed or 0,
        settings=run.own,
        every=run.settings.get("run.held_out.every", 0),
        summary=run.summary,
        rows=run.rows,
    )


def arms(given: Sequence[tuple[str, Sequence[Path]]]) -> list[Arm]:
    """Arms from ``(name, directories)``. Runs without a name are grouped by recipe; runs with one name form one arm.

    All arms must have the same evaluations. An arm with several (a recipe trained on several kinds of tasks, under one name) needs
    the same number of runs for each.
    """
    seen: set[Path] = set()
    named: dict[str, list[EndedRun]] = {}
    loose: list[list[EndedRun]] = []
    for name, directories in given:
        for directory in directories:
            if directory.resolve() in seen:
                raise ValueError(f"{directory} is given twice; give each run once")
            seen.add(directory.resolve())
            run = read(directory)
            if name:
                named.setdefault(name, []).append(run)
            elif same := [group for group in loose if group[0].settings == run.settings]:
                same[0].append(run)
            else:
                loose.append([run])
    groups = [*zip(_names(loose), loose, strict=True), *named.items()]
    if len({name for name, _ in groups}) < len(groups):
        raise ValueError(
            f"two groups have the same name ({', '.join(name for name, _ in groups)}); name them: NAME=RUNS"
        )
    return _same_evaluation(groups)


def _same_evaluation(groups: Sequence[tuple[str, Sequence[EndedRun]]]) -> list[Arm]:
    evaluations: list[dict[str, Any]] = []
    for run in groups[0][1]:
        if run.held_out not in evaluations:
            evaluations.append(run.held_out)
    found = []
    for name, runs in groups:
        for run in runs:
            if run.held_out not in evaluations:
                first = groups[0][1][0]
                without = [one.directory for one in (first, run) if "held_out" in one.settings]
                if len(without) == 1:
                    raise ValueError(
                        f"{without[0]} was trained without held_out, and "
                        f"{run.directory if without[0] == first.directory else first.directory} with it. Their scores cannot be "
                        "compared; train both with the same held_out"
                    )
                differs = difference(evaluations[0], run.held_out)
                apart, way = "evaluated on the same held-out set", "train both with the same held_out"
                if _but_rewards(evaluations[0]) == _but_rewards(run.held_out):
                    apart = "evaluated by the same rewards"
                    way = "train both with the same held_out.rewards, which may differ from what they train on"
                raise ValueError(
                    f"{first.directory} and {run.directory} were not {apart} ({differs}). Their scores cannot be compared; {way}"
                )
        strata = [
            sorted((run for run in runs if run.held_out == evaluation), key=lambda run: run.seed)
            for evaluation in evaluations
        ]
        for stratum in strata:
            _repetitions(name, stratum)
        if len({len(stratum) for stratum in strata}) > 1:
            counts = " and ".join(str(len(stratum)) for stratum in strata)
            raise ValueError(
                f"{name} has {counts} runs for its {len(evaluations)} evaluations; give the same number of runs for each"
            )
        found.append(Arm(name=name, runs=strata))
    return found


def _but_rewards(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in evaluation.items() if not key.startswith("rewards.")}


def _repetitions(name: str, runs: Sequence[EndedRun]) -> None:
    """Runs of one arm and evaluation must differ only in their seeds."""
    for before, run in pairwise(runs):
        if run.settings != runs[0].settings:
            what = difference(runs[0].settings, run.settings)
            raise ValueError(
                f"{name} holds {runs[0].directory} and {run.directory}, which are not repetitions of one recipe ({what}); "
                "put them into two groups (NAME=RUNS)"
            )
        if run.seed == before.seed:
            raise ValueError(
                f"{before.directory} and {run.directory} have the same recipe and seed ({run.seed}), so the second adds nothing; "
                "leave one out"
            )


def differing(found: Sequence[Arm]) -> list[str]:
    """The fields in which the arms' recipes differ."""
    settings = [run.settings for arm in found for run in arm.all_runs[:1]]
    keys = dict.fromkeys(key for one in settings for key in one)
    return [key for key in keys if any(one.get(key) != settings[0].get(key) for one in settings)]


def difference(a: Mapping[str, Any], b: Mapping[str, Any]) -> str:
    """The first few fields in which two recipes differ, in words."""
    keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
    shown = [f"{key} is {a.get(key, 'absent')} and {b.get(key, 'absent')}" for key in keys[:2]]
    return ", ".join(shown + [f"and {len(keys) - 2} more"] * (len(keys) > 2))


def _names(groups: Sequence[Sequence[EndedRun]]) -> list[str]:
    """A name for each group: what its directories' names share before the seed, or its recipe and own settings, as typed."""
    # The end of a single run's name may not be its seed: lr1e-2.
    stems = [
        {re.sub(r"-s?\d+(-\d+)?$", "", run.directory.name) if len(runs) > 1 else run.directory.name for run in runs}
        for runs in groups
    ]
    found = [stem.pop() if len(stem) == 1 else "" for stem in stems]
    if "" not in found and len(set(found)) == len(found):
        return found
    recipes = [runs[0].recipe.rpartition(":")[2] for runs in groups]
    if len(set(recipes)) == len(recipes):
        return recipes
    keys = [key for key in groups[0][0].settings if len({str(runs[0].settings.get(key)) for runs in groups}) > 1]
    shown = [", ".join(f"{key}={runs[0].settings.get(key)}" for key in keys[:2]) for runs in groups]
    return [f"{recipe} ({words})" for recipe, words in zip(recipes, shown, strict=True)]


def _leaves(value: Any, path: str = "") -> dict[str, Any]:
    """{dotted path: scalar} of nested mappings and lists; an empty one counts as a value."""
    if isinstance(value, Mapping | list) and value:
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return {k: v for key, item in items for k, v in _leaves(item, f"{path}.{key}" if path else str(key)).items()}
    return {path: value}
