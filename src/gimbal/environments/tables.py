"""Rows of files, found again by their number: a file is gone through once, and a row is read when it is asked for.

A million rows held as Python objects take gigabytes. Here a row of a JSONL or CSV file costs twenty bytes, its place in the file.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import sys
from abc import ABC, abstractmethod
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gimbal.config.expected import DATA_FILES

MISSING = object()
ENDS = 1 << 20  # bytes of a weight file, from either end: all of a large model would take minutes

csv.field_size_limit(2**31 - 1)  # bytes of a cell; Python's own limit of 128 kB is too small for a long document


class Row(NamedTuple):
    """A row, its place in the file (for messages), and its id if it has none of its own."""

    value: Any
    where: str
    made_id: str


def at(row: Mapping[str, Any], name: str) -> Any:
    """The column of this name, or what a dotted name leads to inside of one: reward_model.ground_truth."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return value


class AbstractTable(ABC):
    """Rows by number. The same number is always the same row."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, index: int) -> Row: ...

    def __iter__(self) -> Iterator[Row]:
        """All rows, for the first time; a malformed one raises here."""
        return (self[index] for index in range(len(self)))

    @abstractmethod
    def digests(self) -> dict[str, str]:
        """A digest of each file by its path, so that a resume can tell if the data changed."""


class Rewritten(ValueError):
    """A file of rows was written to while a run reads it. The run ends at a checkpoint, and can continue once the file is back."""


class _Twice(ValueError):
    """A key occurs twice, so that one of its values would be lost silently."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(ascii(next(name for name in names if names.count(name) > 1))[:80])
    return row


_DECODER = json.JSONDecoder(object_pairs_hook=_once)  # shared, because making one takes as long as reading a row


def parsed(text: str, where: str) -> Any:
    """The value of a piece of JSON, or a ValueError that says what is wrong with it."""
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where}: not JSON ({error.msg}, column {error.colno})") from error
    except _Twice as error:
        raise ValueError(f"{where}: the key {error} appears twice; remove one") from error
    except RecursionError as error:
        raise ValueError(f"{where}: it is nested too deeply") from error
    except ValueError as error:  # Python refuses to convert longer numbers
        most = sys.get_int_max_str_digits()
        raise ValueError(f"{where}: a number of more than {most:,} digits; write it as text, in quotes") from error


class _Pieces:
    """A file, read piece by piece. It stays open, so that one that is replaced meanwhile is still the one that was read first; one that
    is written to in place would be read in the middle of a row, and is refused."""

    def __init__(self, path: Path, what: str) -> None:
        if path.exists() and not path.is_file():  # a pipe would be waited for, for good, and is empty on a resume
            raise ValueError(f"{path} is no file; {what}, and is read again by --resume and eval")
        try:
            self.file = path.open("rb")
        except FileNotFoundError as error:
            raise ValueError(f"there is no file {path}; {what}") from error
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error}") from error
        self.path, self._state = path, self._now()

    def _now(self) -> tuple[int, int]:
        state = os.fstat(self.file.fileno())
        return state.st_size, state.st_mtime_ns

    def text(self, start: int, end: int) -> str:
        if self._now() != self._state:
            raise Rewritten(
                f"{self.path} changed while it was in use; restore it, and do not change it until the run ends"
            )
        return self.decoded(os.pread(self.file.fileno(), end - start, start), start)

    def decoded(self, piece: bytes, start: int) -> str:
        try:
            return piece.decode("utf-8-sig" if start == 0 else "utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{self.path} cannot be read as UTF-8: byte {start + error.start} is {piece[error.start]:#04x}; save it as UTF-8"
            ) from error

    def digests(self) -> dict[str, str]:
        return {os.path.realpath(self.path): digest(self.path)}


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def digest_of_model(directory: Path) -> str:
    """By the sizes and both ends of its files."""
    found = hashlib.blake2b()
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            found.update(f"{path.relative_to(directory)} {size}".encode())
            for at in (0, max(0, size - ENDS)):
                file.seek(at)
                found.update(file.read(ENDS))
    return found.hexdigest()


def _placed(begins: array[int], numbers: array[int]) -> tuple[np.ndarray, np.ndarray]:
    """(Begin and end of each row in bytes, the number of its line)."""
    return np.array(begins, np.int64).reshape(-1, 2), np.array(numbers, np.int32)


class Lines(AbstractTable):
    """JSONL: one object a line. Blank lines are passed over."""

    def __init__(self, path: Path, stem: str) -> None:
        self._pieces, self._stem = _Pieces(path, "a JSONL file has one JSON object a line"), stem
        begins, numbers, at = array("q"), array("q"), 0
        # Not by Python's lines of text: strings in JSON may hold the other line separators.
        for number, line in enumerate(self._pieces.file, start=1):
            if line.strip(b" \t\r\n\xef\xbb\xbf"):
                begins.extend((at, at + len(line)))
                numbers.append(number)
            at += len(line)
        self._begins, self._numbers = _placed(begins, numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Row]:
        for index in range(len(self)):
            text, number = self._text(index)
            where = f"{self._pieces.path}, line {number}"
            value = parsed(text, where)
            if "\\u" in text:  # half of a surrogate pair can only come from an escape
                _whole(value, where)
            yield Row(value, where, f"{self._stem}:{number}")

    def __getitem__(self, index: int) -> Row:
        text, number = self._text(index)
        return Row(json.loads(text), f"{self._pieces.path}, line {number}", f"{self._stem}:{number}")

    def _text(self, index: int) -> tuple[str, int]:
        start, end = self._begins[index].tolist()
        return self._pieces.text(start, end), int(self._numbers[index])

    def digests(self) -> dict[str, str]:
        return self._pieces.digests()


def _whole(row: Any, where: str) -> None:
    """Refuse half of a surrogate pair, which can be neither tokenised nor written to a file."""
    for key, value in row.items() if isinstance(row, Mapping) else ():
        try:
            json.dumps([key, value], ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            half = f"half of a surrogate pair, {error.object[error.start]!a}"
            raise ValueError(f"{where}: {key!a:.60} holds {half}, which is no character; leave it out") from error


class Listed(AbstractTable):
    """Rows held in memory: a JSON file with one list of objects, or a Python list."""

    def __init__(self, rows: Sequence[Any], file: str, noun: str, stem: str, path: Path | None = None) -> None:
        self._rows, self._file, self._noun, self._stem, self._path = rows, file, noun, stem, path

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Row:
        where = f"{self._file}, {self._noun} {index}"
        _whole(self._rows[index], where)
        return Row(self._rows[index], where, f"{self._stem}:{index}")

    def digests(self) -> dict[str, str]:
        return {} if self._path is None else {os.path.realpath(self._path): digest(self._path)}


def json_table(path: Path, stem: str) -> AbstractTable:
    """A .json file: a list of objects, or (as some name such files) one object a line."""
    pieces = _Pieces(path, "a JSON file has a list of objects")
    begin = pieces.file.read(1000).lstrip(b" \t\r\n\xef\xbb\xbf")
    if begin.split(b"\n")[0].strip() == b"{":
        raise ValueError(
            f"{path} holds one object over several lines; expected a list of objects, or one object a line"
        )
    if begin[:1] != b"[":
        return Lines(path, stem)
    pieces.file.seek(0)
    rows = parsed(pieces.decoded(pieces.file.read(), 0), str(path))
    if not isinstance(rows, list):
        raise ValueError(f"{path}: expected a list of objects, got {type(rows).__name__}")
    return Listed(rows, str(path), "item", stem, path)


class Cells(AbstractTable):
    """CSV (or with tabs, TSV): the first row names the columns. A cell is text; an empty one is None."""

    def __init__(self, path: Path, stem: str) -> None:
        self._pieces, self._stem = _Pieces(path, "a CSV file has the names of its columns in the first row"), stem
        self._tab = "\t" if path.suffix == ".tsv" else ","
        begins, numbers, self._at, self._line = array("q"), array("q"), 0, 0
        self.names: list[str] = []
        before = (0, 0)
        for cells in self._records(self._counted()):
            start, line = before
            before = (self._at, self._line)
            if not cells:
                continue
            if not self.names:
                self.names = cells
                continue
            where = f"{path}, line {line + 1}"
            if len(cells) != len(self.names):
                raise ValueError(
                    f"{where}: {len(cells)} cells, and the first row names {len(self.names)} columns; a cell with a comma, a "
                    'quote or a line break stands in quotes, and a quote inside of it is doubled: "say ""yes"""'
                )
            begins.extend((start, self._at))
            numbers.append(line + 1)
        if twice := [name for name, count in Counter(self.names).items() if count > 1]:
            raise ValueError(f"{path}: the first row names the column {twice[0]!r} twice; rename one of them")
        self._begins, self._numbers = _placed(begins, numbers)

    def _counted(self) -> Iterator[str]:
        """The lines of the file, each with the bytes read so far; a record may take several lines."""
        for line in self._pieces.file:
            text = self._pieces.decoded(line, self._at)
            self._at += len(line)
            self._line += 1
            yield text

    def _records(self, lines: Iterator[str]) -> Iterator[list[str]]:
        reader = csv.reader(lines, delimiter=self._tab, strict=True)
        while True:
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                raise ValueError(
                    f"{self._pieces.path}, line {self._line}: not CSV ({error}); a quote inside of a quoted cell is doubled"
                ) from error

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: int) -> Row:
        start, end = self._begins[index].tolist()
        number = int(self._numbers[index])
        (cells,) = csv.reader(io.StringIO(self._pieces.text(start, end), newline=""), delimiter=self._tab, strict=True)
        row = {name: cell or None for name, cell in zip(self.names, cells, strict=True)}
        return Row(row, f"{self._pieces.path}, line {number}", f"{self._stem}:{number}")

    def digests(self) -> dict[str, str]:
        return self._pieces.digests()


class Joined(AbstractTable):
    """Several tables, one after the other."""

    def __init__(self, tables: Sequence[AbstractTable]) -> None:
        self._tables = tables
        self._ends = np.cumsum([len(table) for table in tables])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> Row:
        number = int(np.searchsorted(self._ends, index, side="right"))
        return self._tables[number][index - (int(self._ends[number - 1]) if number else 0)]

    def __iter__(self) -> Iterator[Row]:
        for table in self._tables:
            yield from table

    def digests(self) -> dict[str, str]:
        return {path: found for table in self._tables for path, found in table.digests().items()}


OPENED: dict[str, Callable[[Path, str], AbstractTable]] = {
    ".jsonl": Lines,
    ".ndjson": Lines,
    ".json": json_table,
    ".csv": Cells,
    ".tsv": Cells,
}
assert {*OPENED, ".parquet"} == set(DATA_FILES)
