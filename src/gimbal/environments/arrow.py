"""Rows of parquet files, of saved datasets and of the Hugging Face hub, by the ``datasets`` library (the extra ``data``).

The library keeps a dataset on disk as Arrow and maps it into memory, so that rows take none until they are asked for.
"""

from __future__ import annotations

import importlib
import logging
import os
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from gimbal.environments.images import cache
from gimbal.environments.tables import AbstractTable, Row, digest
from gimbal.ops import philox

HUB_SECONDS = 10.0  # for the hub's first answer; the library itself would ask for half a minute
BATCH = 1000  # rows made into Python's objects at once where all are gone through
MOST_SAID = 300  # characters of the library's own words
FORMATS = {
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}


class Arrow(AbstractTable):
    """A dataset on disk. Columns stay as they are stored: an image is its bytes."""

    def __init__(self, dataset: Any, name: str, stem: str, files: Sequence[Path] = ()) -> None:
        # Without its own format: the library would decode images, and here they are bytes until someone looks at them.
        self._dataset, self._name, self._stem, self._files = dataset.with_format("arrow"), name, stem, files

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Row:
        return self._row(index, self._dataset[index].to_pylist()[0])

    def __iter__(self) -> Iterator[Row]:
        index = 0
        for batch in self._dataset.iter(batch_size=BATCH):
            for value in batch.to_pylist():
                yield self._row(index, value)
                index += 1

    def _row(self, index: int, value: Any) -> Row:
        return Row(value, f"{self._name}, row {index}", f"{self._stem}:{index}")

    def digests(self) -> dict[str, str]:
        """Of the user's own files; of the hub's, by the library's copy of them."""
        if self._files:
            return {os.path.realpath(file): digest(file) for file in self._files}
        copies = sorted(Path(held["filename"]) for held in self._dataset.cache_files)
        return {f"{self._name} ({copy.name})": digest(copy) for copy in copies}


class Stream(AbstractTable):
    """A dataset that is read as it is downloaded, in one order: its own, but for a buffer that rows leave by lot.

    A row is found again by its number alone: going back begins the stream anew and passes over what came before. So a resumed run
    reads as far as it had come, and goes on with the same rows. (The library shuffles too, in an order that its version decides.)
    """

    def __init__(
        self,
        dataset: Any,
        name: str,
        stem: str,
        size: int,
        buffer: int,
        seed: int,
        files: Sequence[Path] = (),
        commit: str = "",
    ) -> None:
        self._name, self._stem, self._files, self._commit = name, stem, files, commit
        splits = dataset.info.splits or {}
        known = splits[dataset.split].num_examples if dataset.split in splits else 0
        if not (size or known):
            raise ValueError(
                f"the stream {name} has no known number of rows: tasks.epoch_size=N takes its first N as one epoch"
            )
        self._size = min(size, known) if size and known else size or known
        self._dataset, self._buffer, self._seed = dataset.decode(False), buffer, seed
        self._end = self._size  # how many there are, as far as is known: those behind it are the first ones again
        self._rows: Any = iter(())
        self._next, self._first, self._last = self._size, None, (-1, None)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> Row:
        if not 0 <= index < self._size:
            raise IndexError(f"row {index} of {self._size}")
        index %= self._end
        if index == 0 and self._first is not None:  # every run asks for it twice
            return self._row(0, self._first)
        if index == self._last[0]:
            return self._row(*self._last)
        if index < self._next:
            self._rows, self._next = self._shuffled(), 0
            # Left open, it would be closed after the modules that it needs are gone, with a traceback at the end of a run.
            weakref.finalize(self, self._rows.close)
        value = None
        while self._next <= index:
            value = next(self._rows, None)
            if value is None and not self._next:
                raise ValueError(f"the stream {self._name} holds no rows")
            if value is None:  # fewer than were said; to end the run here would cost what it has learned
                self._end = self._next
                return self[index]
            self._next += 1
            if self._next == 1:
                self._first = value
        self._last = (index, value)
        return self._row(index, value)

    def _shuffled(self) -> Generator[Any, None, None]:
        rng, held = philox(self._seed, "stream"), list[Any]()
        for value in self._dataset:
            if len(held) < self._buffer:
                held.append(value)
                continue
            place = int(rng.integers(self._buffer))
            yield held[place]
            held[place] = value
        yield from (held[place] for place in rng.permutation(len(held)))

    def _row(self, index: int, value: Any) -> Row:
        return Row(value, f"{self._name}, row {index} of the stream", f"{self._stem}:{index}")

    def digests(self) -> dict[str, str]:
        """Of files that are here; of the hub's, the commit."""
        commit = {f"{self._name} (commit)": self._commit} if self._commit else {}
        return {os.path.realpath(file): digest(file) for file in self._files} | commit


def library(why: str) -> ModuleType:
    try:
        found = importlib.import_module("datasets")
    except ModuleNotFoundError as error:
        if error.name != "datasets":
            raise
        raise ValueError(
            f"{why} needs the library datasets, which is not installed: pip install -e '.[data]' in the clone "
            "(JSONL, JSON and CSV need none)"
        ) from error
    found.disable_progress_bars()  # they would tear the live console
    found.logging.set_verbosity(logging.CRITICAL)  # what it met is told once, in the refusal
    return found


def parquet(files: Sequence[Path], stem: str) -> Arrow:
    found = library(f"{files[0].name} is parquet, which")
    reader = importlib.import_module("pyarrow.parquet")
    for file in files:
        if not file.is_file():
            raise ValueError(f"there is no file {file}")
        held = told(f"{file} cannot be read as parquet", lambda file=file: reader.read_metadata(file))
        if not held.num_rows:
            raise ValueError(f"{file} holds no rows; leave it out")
    names = ", ".join(map(str, files[:3])) + (f" and {len(files) - 3} more" if len(files) > 3 else "")
    named = [os.path.realpath(file) for file in files]
    dataset = told(
        f"{names} cannot be read as one set of rows",
        lambda: found.load_dataset("parquet", data_files=named, split="train"),
    )
    return Arrow(dataset, names, stem, files)


def stream(files: Sequence[Path], stem: str, size: int, buffer: int, seed: int) -> Stream:
    found = library("streaming")
    (kind,) = {FORMATS[file.suffix] for file in files}
    named, name = [os.path.realpath(file) for file in files], ", ".join(map(str, files[:3]))
    dataset = told(
        f"{name} cannot be streamed",
        lambda: found.load_dataset(kind, data_files=named, split="train", streaming=True),
    )
    return Stream(dataset, name, stem, size, buffer, seed, files)


def saved(directory: Path, split: str) -> Arrow:
    """What ``save_to_disk`` wrote."""
    found = library(f"{directory} was written by the library datasets and")
    dataset = told(f"{directory} cannot be read", lambda: found.load_from_disk(str(directory)))
    chosen, split = one_split(dataset, split, str(directory))
    files = sorted(path for path in (directory / split if split else directory).rglob("*") if path.is_file())
    return Arrow(chosen, str(directory), directory.name, files)


def hub(name: str, config: str, split: str, revision: str, streaming: bool) -> tuple[Any, str, str]:
    """(A dataset of the hub, or of a directory that is laid out like one, the name of its split, the hub's commit if it said)."""
    found = library(f"{name} is a dataset that")
    sentence, commit = f"{name} cannot be read as a dataset", ""
    if not Path(name).is_dir():
        if found.config.HF_HUB_OFFLINE:
            sentence = f"there is no file or directory {name}, and HF_HUB_OFFLINE is set, so the Hub is not asked"
        else:
            commit = _reached(name, revision, Path(found.config.HF_DATASETS_CACHE))
    options = {"name": config or None, "split": split or None, "revision": revision or None, "streaming": streaming}
    dataset = told(sentence, lambda: found.load_dataset(name, **options))
    return *one_split(dataset, split, name), commit


def is_dataset(value: Any) -> bool:
    """Whether it is a dataset of the library's, made or loaded in Python."""
    return type(value).__module__.startswith("datasets.")


def kept(dataset: Any) -> Path:
    """The file that a dataset of Python's is written to, once, so that a resumed run has it."""
    found = library("a dataset")
    if not isinstance(dataset, found.Dataset):
        raise ValueError(
            f"tasks is a {type(dataset).__name__}; give one split of it, such as data['train'], or a stream by its name: "
            "tasks='owner/dataset', tasks__streaming=True"
        )
    path = cache() / "datasets" / f"{dataset._fingerprint}.parquet"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        dataset.to_parquet(str(partial))
        partial.replace(path)
    return path


def one_split(dataset: Any, split: str, name: str) -> tuple[Any, str]:
    """(The split that is asked for, its name); without one, train, or the only one there is. "" where there are none."""
    if not isinstance(dataset, dict):
        return dataset, split
    splits = list(dataset)
    chosen = split or ("train" if "train" in splits else splits[0] if len(splits) == 1 else "")
    if chosen not in splits:
        raise ValueError(f"{name} has the splits {', '.join(splits)}: tasks.split={splits[0]}, or another")
    return dataset[chosen], chosen


def _reached(name: str, revision: str, cached: Path) -> str:
    """The commit that the hub would give. A name that it cannot give is refused at once; what was downloaded before, the library finds
    without it."""
    from huggingface_hub import HfApi

    try:
        return HfApi().dataset_info(name, revision=revision or None, timeout=HUB_SECONDS).sha or ""
    except Exception as error:  # of the hub's client or of the HTTP library under it: no answer is no dataset
        if not (cached / name.replace("/", "___")).is_dir():
            raise ValueError(
                f"there is no file or directory {name}, and the Hugging Face hub gives no dataset of that name ({said(error)[:120]})"
            ) from error
        return ""


def told(sentence: str, read: Callable[[], Any]) -> Any:
    """What ``read`` gives. The library raises whatever it met on its way (errors of Arrow, of its own, of pandas, of the hub's client):
    each means that the data cannot be had."""
    try:
        return read()
    except Exception as error:
        raise ValueError(f"{sentence}: {said(error)}") from error


def said(error: BaseException) -> str:
    """The error's words in one line; of one that was raised for another, that one's, which says what was met."""
    while error.__cause__ is not None and "generating the dataset" in str(error):
        error = error.__cause__
    words = " ".join(str(error).split())
    if words.startswith("There are multiple") and "in the cache:" in words:
        configs = words.partition("in the cache: ")[2].partition(" Please")[0]
        words = f"several of its configs were downloaded ({configs}): tasks.config=NAME"
    if words.startswith("Config name is missing"):
        words = f"it has several configs ({words[words.find('[') : words.find(']') + 1]}): tasks.config=NAME"
    return words[:MOST_SAID] or type(error).__name__
