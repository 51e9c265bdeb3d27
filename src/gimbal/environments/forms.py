"""Tasks by what people type for them: names of files, directories and datasets, weights, lists of rows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from gimbal.config.expected import DATA_FILES, at_commas, is_columns, is_mixture
from gimbal.environments import arrow
from gimbal.environments.behaviors import MADE
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.minari import Minari
from gimbal.environments.mixture import Mixed
from gimbal.environments.recording import located

ENVIRONMENT = re.compile(r"[A-Za-z]\w*-v\d+")  # as gymnasium registers them
OURS = tuple({name.rpartition("/")[0] + "/" for name in MADE})  # of data sets that are made here; the hub has none
WEIGHTED = re.compile(r"(.+?)(?:\*([\d.]+(?:e[-+]?\d+)?))?", re.DOTALL)


def short(value: Any) -> Any:
    """Files, directories and datasets of the hub by name, or a list of dicts, as tasks; anything else as it is.

    ``a.jsonl,b.parquet`` are the rows of both; ``a.jsonl*0.7,b.parquet*0.3`` and ``{a.jsonl: 0.7, b.parquet: 0.3}`` draw from each by
    its weight. A directory in Minari's layout is recorded episodes of control.
    """
    if isinstance(value, str | Path) and _recorded(str(value)):
        return Minari(dataset=str(value))
    if isinstance(value, Path):
        return Dataset(path=str(value))
    if isinstance(value, str):
        return _named(value)
    if arrow.is_dataset(value):
        return Dataset(path=str(arrow.kept(value)))
    if isinstance(value, Mapping):
        if is_columns(value, "tasks"):
            return Rows(rows=_turned(value))
        return _weighed(value) if is_mixture(value) else value
    if isinstance(value, Sequence):
        names = [str(item) for item in value if isinstance(item, str | Path)]
        if not value or len(names) < len(value):
            return Rows(rows=value)
        if isinstance(found := _named(",".join(names)), str):
            raise ValueError(
                f"{names[0]!r:.60} is text and no data file, and a row is a dict with a key for each column: "
                f"[{{'prompt': {names[0]!r:.60}}}, ...]"
            )
        return found
    return value


def _turned(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """The rows of columns of equal length."""
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(f"the columns have different lengths ({told}); each must have one value for every row")
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _recorded(name: str) -> bool:
    """Whether it names recorded episodes; what begins like one of ours and is none is told so by ``Minari``."""
    ours = name in MADE or (name.startswith(OURS) and not Path(name).exists())
    return ours or located(Path(name).expanduser()) is not None


def is_rows(name: str) -> bool:
    """Whether it can only be meant as the name of rows: no part, no class and no word of gimbal's is written so."""
    if re.search(r"[()={}\n'\"]|\.py:", name) and not Path(name).exists():
        return False
    return name.endswith(DATA_FILES) or "/" in name or Path(name).expanduser().is_dir()


def _named(text: str) -> Any:
    if text.startswith("{"):
        try:
            weights = yaml.safe_load(text)
        except yaml.YAMLError:  # what it is instead, the reader of parts says
            return text
        return _weighed(weights) if isinstance(weights, Mapping) and is_mixture(weights) else text
    if ENVIRONMENT.fullmatch(text) and not Path(text).exists():
        raise ValueError(
            f"{text} is the name of an environment: tasks.environment={text}, in a recipe such as sac, dqn or cartpole"
        )
    found = [item for item in map(WEIGHTED.fullmatch, at_commas(text)) if item is not None and is_rows(item[1])]
    if not found or len(found) < len(at_commas(text)):
        return text
    if not any(item[2] for item in found):
        return Dataset(path=_rows([item[1] for item in found]))
    if not all(item[2] for item in found):
        raise ValueError(f"{text}: some have a weight and some have none; give one to each: a.jsonl*0.7,b.jsonl*0.3")
    return _weighed({item[1]: item[2] for item in found})


def _rows(names: Sequence[str]) -> tuple[str, ...]:
    """Names of rows, and none of recorded episodes."""
    if episodes := [name for name in names if _recorded(name)]:
        raise ValueError(
            f"{' and '.join(episodes)} {'holds' if len(episodes) == 1 else 'hold'} recorded episodes, and a run takes one data set: "
            f"gimbal record {' '.join(names if len(names) > 1 else [*names, 'OTHER'])} MIX makes one of several, then tasks=MIX"
        )
    return tuple(names)


def _weighed(weights: Mapping[str, Any]) -> Mixed:
    _rows(list(weights))
    return Mixed(sets=tuple(Dataset(path=name) for name in weights), weights=tuple(map(float, weights.values())))
