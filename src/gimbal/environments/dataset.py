"""Tasks from rows: files, directories, datasets of the Hugging Face hub, or a list of dicts."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gimbal.config import plain
from gimbal.environments import arrow, files, images
from gimbal.environments.base import AbstractTasks, question
from gimbal.environments.columns import ANSWER, Columns
from gimbal.environments.tables import OPENED, AbstractTable, Joined, Listed, Row
from gimbal.records import Task

MOST_TRIED = 100_000  # up to this many rows, each is tried before a run
MOST_SHAPES = 50  # rows of each kind that are tried if there are more
MOST_SOURCES = 32  # sources with metrics of their own; a column with more values is no source


@dataclass(frozen=True, kw_only=True)
class Dataset(AbstractTasks):
    """Rows of JSONL, JSON, CSV and parquet files (one, several, a pattern, a directory), or of a Hub dataset.

    The column ``prompt`` is required, text or chat messages. The answer is the column ``answer``, or what datasets for TRL and
    verl have in its place (solution, ground_truth, reward_model.ground_truth); of that what follows the last ``answer_after``,
    where it is set ("####" for GSM8K). ``id`` (made of the row's number where missing) must be unique; ``data_source`` is
    Task.source. All columns but the prompt go to rewards untouched. A dotted name leads into a column.

    ``chat`` makes a text a user's message, which the model's chat template renders; ``system`` puts a system prompt before every
    chat that has none, and makes chats of texts. Messages stay a list, in ``Task.columns["messages"]``, with an empty
    ``Task.prompt``. (So no other column may be called ``messages``.) A column ``tools`` of a chat goes to the chat template,
    ``images`` or ``image`` is a list of paths in ``Task.columns["images"]``. A column ``prompt_ids`` is asked as the tokens that
    it is.

    ``split`` is one of the hub's, or by the names of files (train-0.parquet, test.jsonl); without it train, where there are
    several. ``config`` and ``revision`` are the hub's. With ``streaming`` rows are read as they arrive, in the order of a
    ``buffer`` that is shuffled by ``seed``; an epoch is the first ``epoch_size`` of them.
    """

    path: str | tuple[str, ...]
    split: str = ""
    config: str = ""
    revision: str = ""
    prompt: str = "prompt"
    answer: str = ANSWER
    answer_after: str = ""
    system: str = ""
    chat: bool = False
    streaming: bool = False
    buffer: int = 1000
    seed: int = 0
    epoch_size: int = 0

    def __post_init__(self) -> None:
        names = (self.path,) if isinstance(self.path, str | Path) else tuple(map(str, self.path))
        object.__setattr__(self, "path", str(names[0]) if len(names) == 1 else names)
        if not self.path:
            raise ValueError("Dataset.path is empty; name a file, a directory, or a dataset of the hub")
        if self.epoch_size and not self.streaming:
            raise ValueError("Dataset.epoch_size is of a stream, tasks.streaming=true; held_out=N sets rows aside")
        if self.epoch_size < 0 or self.buffer < 1:
            raise ValueError(f"Dataset.epoch_size is {self.epoch_size} and buffer {self.buffer}; at least 0 and 1")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.path,) if isinstance(self.path, str) else self.path

    @property
    def ordered(self) -> bool:
        return self.streaming

    @property
    def sources(self) -> tuple[str, ...]:
        return () if self.streaming else self._checked.sources

    def questions(self) -> np.ndarray:
        return super().questions() if self.streaming else self._checked.questions

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> Task:
        return self._columns.task(self._table[index])

    def __getstate__(self) -> dict[str, Any]:
        """Only its fields, because open files stay in their process."""
        return {item.name: vars(self)[item.name] for item in fields(self)}

    @property
    def telling(self) -> Sequence[int]:
        """The numbers of the rows that are tried on the rewards and the model before a run. Of more than 100,000, and of rows with
        images, which are written to files as they are asked for: the longest, and one for each choice of columns."""
        seen = self._checked
        return range(len(self)) if len(self) <= MOST_TRIED and not seen.images else seen.telling

    def digests(self) -> dict[str, str]:
        found = self._opened.digests()
        # Of a pattern or a directory another file would be no edit of any.
        names = hashlib.blake2b("\n".join(sorted(found)).encode()).hexdigest()
        return {**found, f"{', '.join(self.names)} (its list of files)": names}

    @cached_property
    def _columns(self) -> Columns:
        place = Path(self.names[0]).expanduser()
        return Columns(
            prompt=self.prompt,
            answer=self.answer,
            answer_after=self.answer_after,
            system=self.system,
            chat=self.chat,
            beside=place if place.is_dir() else place.parent if place.exists() else None,
        )

    @property
    def _table(self) -> AbstractTable:
        if not self.streaming:
            _ = self._checked  # a malformed row raises before any is trained on
        return self._opened

    @cached_property
    def _checked(self) -> _Seen:
        return check(self._opened, self._columns, ", ".join(self.names))

    @cached_property
    def _opened(self) -> AbstractTable:
        name = self.names[0]
        place = Path(name).expanduser()
        if len(self.names) > 1 or files.local(name):
            if (place / "dataset_dict.json").is_file() or (place / "state.json").is_file():
                return arrow.saved(place, self.split)
            if not self.config and not _has_card(place):
                return self._of_files(files.files(self.names, self.split))
        if len(self.names) > 1:
            raise ValueError(f"tasks.config is of a dataset of the hub, and {', '.join(self.names)} are files")
        dataset, split, commit = arrow.hub(name, self.config, self.split, self.revision, self.streaming)
        name = f"{name}, split {split}" if split else name
        stem = f"{place.name}-{split}" if split else place.name
        if self.streaming:
            return arrow.Stream(dataset, name, stem, self.epoch_size, self.buffer, self.seed, commit=commit)
        return arrow.Arrow(dataset, name, stem)

    def _of_files(self, found: list[Path]) -> AbstractTable:
        if self.revision:
            raise ValueError(f"tasks.revision is of a dataset of the hub, and {', '.join(self.names)} is here")
        if self.streaming:
            if len(kinds := {path.suffix for path in found}) > 1:
                raise ValueError(f"a stream is of files of one kind, and these are {', '.join(sorted(kinds))}")
            return arrow.stream(found, found[0].stem, self.epoch_size, self.buffer, self.seed)
        # Parquet files are one dataset of the library's; every other file is read here.
        packed = [path for path in found if path.suffix == ".parquet"]
        tables = [
            OPENED[path.suffix](path, stem)
            for path, stem in zip(found, files.names_of(list(map(str, found))), strict=True)
            if path not in packed
        ]
        tables += [arrow.parquet(packed, packed[0].stem)] if packed else []
        return Joined(tables) if len(tables) > 1 else tables[0]


@dataclass(frozen=True, kw_only=True)
class Rows(AbstractTasks):
    """Rows from a list of dicts, read like those of a ``Dataset``. Numbers and arrays of numpy and torch become Python's."""

    rows: Sequence[Mapping[str, Any]] = field(hash=False)
    prompt: str = "prompt"
    answer: str = ANSWER
    answer_after: str = ""
    system: str = ""
    chat: bool = False

    def __post_init__(self) -> None:
        rows = []
        for number, row in enumerate(self.rows):
            where = f"the list of rows, row {number}"
            try:
                rows.append(plain(_with_paths(row, where)))
            except (ValueError, RecursionError) as error:
                what = "nested too deeply" if isinstance(error, RecursionError) else str(error)
                raise ValueError(f"{where}: {what}") from error
        object.__setattr__(self, "rows", rows)

    @property
    def sources(self) -> tuple[str, ...]:
        return self._checked[1].sources

    def questions(self) -> np.ndarray:
        return self._checked[1].questions

    def __len__(self) -> int:
        return len(self._checked[0])

    def __getitem__(self, index: int) -> Task:
        return self._checked[0][index]

    @cached_property
    def _checked(self) -> tuple[tuple[Task, ...], _Seen]:
        columns = Columns(
            prompt=self.prompt,
            answer=self.answer,
            answer_after=self.answer_after,
            system=self.system,
            chat=self.chat,
        )
        table = Listed(self.rows, "the list of rows", "row", "row")
        seen = check(table, columns, "the list of rows")
        return tuple(map(columns.task, table)), seen


def _with_paths(row: Any, where: str) -> Any:
    """The row with PIL images written to files, whose paths are saved with the run."""
    if not isinstance(row, Mapping):
        return row
    return {
        key: images.stored(value, where)
        if images.is_pil(value)
        else [images.stored(item, where) if images.is_pil(item) else item for item in value]
        if key in images.NAMES and isinstance(value, list | tuple)
        else value
        for key, value in row.items()
    }


def _has_card(place: Path) -> bool:
    """Whether a directory is a dataset in the Hub's layout, with a card that assigns files to splits."""
    card = place / "README.md"
    if not card.is_file():
        return False
    text = card.read_text(encoding="utf-8", errors="replace")
    return text.startswith("---") and "\nconfigs:" in text.split("\n---", 1)[0]


class _Seen(NamedTuple):
    """What is kept after all rows were checked."""

    sources: tuple[str, ...]  # the sources that rows name, if several
    questions: np.ndarray  # a number for each row, equal for equal questions
    telling: list[int]  # rows that stand for all: see ``Dataset.telling``
    images: bool


def check(table: AbstractTable, columns: Columns, name: str) -> _Seen:
    """Check every row once before training, one at a time, without keeping any."""
    looking = replace(columns, keep_images=False)
    ids, questions, lengths = array("q"), array("q"), array("q")
    sources, shapes, answered, images, row = dict[str, None](), dict[Any, int](), False, False, None
    for row in table:
        task = looking.task(row)
        lengths.append(len(task.prompt) or len(str(task.columns.get("messages", ""))))
        if len(shapes) < MOST_SHAPES:
            shapes.setdefault((*task.columns, task.answer is None), len(ids))
        images = images or "images" in task.columns
        ids.append(hash(task.id))
        questions.append(question(task))
        answered = answered or task.answer is not None
        if task.source and len(sources) <= MOST_SOURCES:
            sources[task.source] = None
    if row is None:
        raise ValueError(f"{name} holds no tasks; expected rows with a column {columns.prompt!r}")
    if not answered and columns.answer != ANSWER:
        there = ", ".join(map(str, row.value))
        raise ValueError(f"{name}: no row has the answer {columns.answer!r} (tasks.answer); columns: {there}")
    _unique(np.frombuffer(ids, np.int64), table, looking)
    several = tuple(sources) if 1 < len(sources) <= MOST_SOURCES else ()
    longest = np.argsort(np.frombuffer(lengths, np.int64))[-MOST_SHAPES:].tolist()
    telling = sorted({*shapes.values(), *longest})
    return _Seen(several, np.frombuffer(questions, np.int64), telling, images)


def _unique(ids: np.ndarray, table: AbstractTable, columns: Columns) -> None:
    """By the hashes of all ids, of which a million take 8 MB; where two are alike, by the ids themselves."""
    hashes, counts = np.unique(ids, return_counts=True)
    if len(hashes) == len(ids):
        return
    before: dict[str, Row] = {}
    for place in np.flatnonzero(np.isin(ids, hashes[counts > 1])).tolist():
        row = table[place]
        name = columns.task(row).id
        if name in before:
            raise ValueError(
                f"{row.where}: the id {name!r} has come before ({before[name].where}); ids are unique, or left out"
            )
        before[name] = row
