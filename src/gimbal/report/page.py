"""report.html: one page about runs that opens offline.

The page is one file: our own readable scripts and styles, uPlot for the curves, and the data as gzip in base64, which the
browser unpacks. It unpacks the index of the rollouts (text, score, length) at once, and the details of single decisions
when they are viewed.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gimbal import durable
from gimbal.report import overview
from gimbal.report.files import JsonLines

ASSETS = Path(__file__).parent / "assets"
SCRIPTS = (
    "base.js",
    "overview.js",
    "curves.js",
    "density.js",
    "list.js",
    "talk.js",
    "paths.js",
    "rollouts.js",
    "main.js",
)
DECISIONS = 2_000_000  # most rollout decisions on a page; rollouts.jsonl has all recorded ones
CHUNK = 20_000  # decisions unpacked together
INDEX = ("step", "group", "sample", "score", "solved", "stop", "text", "point")
DETAIL = (
    "pieces",
    "scores",
    "version",
    "behavior",
    "proximal",
    "advantage",
    "entropy",
    "mask",
    "part",
    "turn",
    "fork",
    "row",
    "role",
    "acts",
    "time/acts",
    "image",
    "path",
)
FOLLOWED = ("rollouts.jsonl", "metrics.jsonl", "summary.json")
Row = dict[str, Any]


def write_report(*directories: Path, path: Path | None = None) -> Path:
    """One page about these runs, from what they have written so far: in the run's directory, or next to the first of several."""
    if path is None:
        path = (directories[0] if len(directories) == 1 else directories[0].parent) / "report.html"
    text = page(directories)
    with durable.named(path):
        path.write_text(text, encoding="utf-8")
    return path


def page(directories: Sequence[Path], live: bool = False) -> str:
    """The page's HTML. A live page asks its server for what was written since."""
    data, details = describe(directories)
    data["live"] = live
    packed = "\n".join(
        f'<script type="text/plain" id="{name}">{_packed(value)}</script>'
        for name, value in [("data", data), *((f"chunk-{i}", chunk) for i, chunk in enumerate(details))]
    )
    styles = {
        name: (ASSETS / file).read_text(encoding="utf-8")
        for name, file in (("uplot_css", "uPlot.min.css"), ("css", "report.css"))
    }
    scripts = {
        "uplot_js": f"/*\n{(ASSETS / 'uPlot.LICENSE').read_text()}*/\n{(ASSETS / 'uPlot.iife.min.js').read_text(encoding='utf-8')}",
        "js": '"use strict";\n' + "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in SCRIPTS),
    }
    # Only these scripts and styles may run, whatever model text smuggles in; nothing is fetched.
    connect = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; img-src data:; connect-src {connect}; "
        f"script-src {_hashes(scripts.values())}; style-src {_hashes(styles.values())}; base-uri 'none'; form-action 'none'"
    )
    title = f"{len(directories)} runs" if len(directories) > 3 else ", ".join(path.name for path in directories)
    parts = {"title": html.escape(title), "policy": policy, "data": packed} | styles | scripts
    template = (ASSETS / "report.html").read_text(encoding="utf-8")
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


@dataclass(frozen=True)
class Mark:
    """How far a run has been read: its rollout file's number, the byte in it, and what shows that metrics grew."""

    file: int
    byte: int
    stamp: str

    @classmethod
    def of(cls, directory: Path) -> Mark:
        """The run's current mark."""
        stats = [path.stat() if path.exists() else None for path in (directory / name for name in FOLLOWED)]
        stamp = ",".join("0" if stat is None else f"{stat.st_size}-{stat.st_mtime_ns}" for stat in stats[1:])
        return cls(stats[0].st_ino if stats[0] else 0, stats[0].st_size if stats[0] else 0, stamp)

    @classmethod
    def read(cls, text: str) -> Mark:
        file, byte, stamp = text.split("/")
        if int(byte) < 0:
            raise ValueError("a mark's byte must be 0 or above: it counts from the beginning of the file")
        return cls(int(file), int(byte), stamp)

    def __str__(self) -> str:  # text, because these exceed JavaScript's numbers
        return f"{self.file}/{self.byte}/{self.stamp}"


def describe(directories: Sequence[Path], marks: Sequence[Mark] | None = None) -> tuple[Row, list[list[Row]]]:
    """(the page's data, its rollout details in chunks).

    ``marks`` come from an earlier answer, one per run: then only rollouts written since are included. If a file was replaced
    meanwhile (its run was resumed), all are read again, and ``restart`` says that the earlier rollouts are gone.
    """
    now = [Mark.of(directory) for directory in directories]  # before anything is read: later lines count as news again
    restart = marks is not None and [mark.file for mark in now] != [mark.file for mark in marks]
    rows: list[Row] = []
    for number, directory in enumerate(directories):
        start = 0 if marks is None or restart else marks[number].byte
        new, end = JsonLines(directory / FOLLOWED[0]).since(start)
        rows += [row | {"run": number} for row in new]
        now[number] = replace(now[number], byte=end)
    read = [overview.RunOnDisk.read(directory) for directory in directories]
    runs, differs = overview.describe(read)
    if overview.graded(read):
        rows = [row | {"solved": None} for row in rows]
    index, details = _rollouts(_spread(rows))
    data = {
        "conclusion": overview.conclusion(runs),
        "compared": overview.compared(runs, directories) if len(runs) > 1 else "",
        "differs": differs,
        "runs": runs,
        "rollouts": index,
        "recorded": len(rows),
        "marks": [str(mark) for mark in now],
        "restart": restart,
    }
    return data, details


def _spread(rows: Sequence[Row]) -> list[Row]:
    """All rollouts, or those of steps spread evenly over every run, including its first and last."""
    steps: dict[int, set[int]] = {}
    for row in rows:
        steps.setdefault(row["run"], set()).add(row["step"])
    decisions = sum(len(row["pieces"]) for row in rows)
    if decisions <= DECISIONS:
        return list(rows)
    kept = {}
    for run, known in steps.items():
        count, ordered = max(2, DECISIONS * len(known) // decisions), sorted(known)
        if count < len(ordered):
            ordered = [ordered[i * (len(ordered) - 1) // (count - 1)] for i in range(count)]
        kept[run] = set(ordered)
    return [row for row in rows if row["step"] in kept[row["run"]]]


def _rollouts(rows: Sequence[Row]) -> tuple[Row, list[list[Row]]]:
    """The index, one column per field, and the details in chunks of neighbours."""
    tasks: dict[tuple[str, str, str | None], int] = {}
    index: Row = {name: [row.get(name) for row in rows] for name in ("run", *INDEX)}
    index["task"] = [tasks.setdefault((row["task"], row["prompt"], row["answer"]), len(tasks)) for row in rows]
    index["length"] = [len(row["pieces"]) for row in rows]
    index["tasks"] = list(tasks)
    # None: nothing says what is solved. Older records without ``solved`` are judged by their score.
    index["solved"] = [row["score"] >= 1 if "solved" not in row else row["solved"] for row in rows]
    chunks: list[list[Row]] = []
    index["chunk"], size = [], CHUNK
    for row in rows:
        if size >= CHUNK:
            chunks.append([])
            size = 0
        chunks[-1].append({name: row.get(name) for name in DETAIL})
        index["chunk"].append([len(chunks) - 1, len(chunks[-1]) - 1])
        size += len(row["pieces"])
    return index, chunks


def _packed(value: Any) -> str:
    """Base64 has no HTML characters, so model text cannot break out of its element."""
    return base64.b64encode(gzip.compress(json.dumps(value, separators=(",", ":")).encode(), 6, mtime=0)).decode()


def _hashes(texts: Iterable[str]) -> str:
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts)
