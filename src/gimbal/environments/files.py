"""The files of a dataset: a file, several, a pattern, or a directory with splits."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Sequence
from pathlib import Path

from gimbal.config.expected import DATA_FILES

WRITTEN = (
    "dataset_info.json",
    "dataset_infos.json",
    "state.json",
    "dataset_dict.json",
    "package.json",
)  # about the rows
SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "eval": "test",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "dev": "validation",
}


def local(name: str) -> bool:
    """Whether it is meant as a place on this disk, and not as a name of the hub (owner/dataset)."""
    path = Path(name).expanduser()
    shaped = (
        re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) and not name.startswith((".", "~")) and path.suffix not in DATA_FILES
    )
    return path.exists() or not shaped


def files(names: Sequence[str], split: str) -> list[Path]:
    """The files of these names, each a file, a pattern or a directory; of several splits those of one."""
    found: list[Path] = []
    for name in names:
        path = Path(name).expanduser()
        if path.is_dir():
            found += _inside(path, split)
        elif any(mark in name for mark in "*?[") and not path.exists():
            matches = sorted(Path(place) for place in glob.glob(str(path), recursive=True))
            matches = [place for place in matches if place.is_file()]
            if not matches:
                raise ValueError(f"no file matches {name}")
            found += _of(matches, split, name) if split else matches
        else:
            found += _of([path], split, name) if split else [path]
    for path in found:
        if not path.exists():
            raise ValueError(f"there is no file {'' if path.suffix in DATA_FILES else 'or directory '}{path}")
        if path.suffix not in DATA_FILES:
            raise ValueError(
                f"{path} is no file of rows by its name; it ends in {', '.join(DATA_FILES[:-1])} or {DATA_FILES[-1]}"
            )
    if len({os.path.realpath(path) for path in found}) < len(found):
        twice = next(path for number, path in enumerate(found) if path in found[:number])
        raise ValueError(f"{twice} is named twice; name each file once")
    return found


def _inside(directory: Path, split: str) -> list[Path]:
    every = sorted(path for path in directory.rglob("*") if path.is_file() and not _hidden(path, directory))
    found = [path for path in every if path.suffix in DATA_FILES and path.name not in WRITTEN]
    if not found:
        packed = [path.name for path in every if path.suffix in (".gz", ".zst", ".zip", ".xz")]
        way = f"; unpack {packed[0]}" if packed else ""
        raise ValueError(f"{directory} holds no file of rows ({', '.join(DATA_FILES)}){way}")
    chosen = _of(found, split, str(directory), directory)
    if len(kinds := sorted({path.suffix for path in chosen})) > 1:
        raise ValueError(
            f"{directory} holds {' and '.join(kinds)} files; say which ones to read: tasks='{directory}/*{kinds[0]}'"
        )
    return chosen


def _hidden(path: Path, directory: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(directory).parts)


def split_of(path: Path, directory: Path | None = None) -> str:
    """The split that a file's name speaks of (train-00000-of-00001.parquet, test.jsonl, dev/rows.csv); "" where it speaks of none."""
    name = str(path.relative_to(directory)) if directory else path.name
    words = re.split(r"[^A-Za-z]+", name.removesuffix(path.suffix).lower())
    return next((SPLITS[word] for word in words if word in SPLITS), "")


def _of(paths: Sequence[Path], split: str, name: str, directory: Path | None = None) -> list[Path]:
    """Those of one split. Without a name for it: train where there are several, as everywhere."""
    splits: dict[str, list[Path]] = {}
    for path in paths:
        splits.setdefault(split_of(path, directory), []).append(path)
    if not split:
        if len(splits) == 1:
            return list(paths)
        splits["train"] = splits.get("train", []) + splits.pop("", [])
        if not splits["train"]:
            del splits["train"]
    asked = SPLITS.get(split, split) or "train"
    if asked not in splits:
        there = ", ".join(filter(None, splits)) or "none by the names of its files"
        raise ValueError(f"{name} has no split {asked}; it has {there} (tasks.split=NAME)")
    return sorted(splits[asked])


def names_of(paths: Sequence[str]) -> list[str]:
    """Short names of files or datasets: the last part of each path, or all of it where two end alike."""
    names = [
        Path(path).name.removesuffix(Path(path).suffix if Path(path).suffix in DATA_FILES else "") for path in paths
    ]
    return [name if names.count(name) == 1 else path for name, path in zip(names, paths, strict=True)]
