"""Writes docs/benchmarks.md from the recorded benchmarks/*.json: `python benchmarks/page.py`; a test holds the page against it.

A record is one of three: ``runs`` of several ``arm`` (the same work done by peers, in turns), lists of rows, or plain
figures. The words of a section are the first paragraph of its script's docstring.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
HEAD = """# Benchmarks

Written by benchmarks/page.py from what the scripts recorded. Each comparison was measured in one run of one script, both sides taking
turns on the same machine, which is named by its cores only; benchmarks/README.md says what was held equal. Figures of one table can be
compared with each other, not with those of another machine."""
ROWS = 40  # most rows of a table; of a longer record only the figures about it are shown


def page() -> str:
    records = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in sorted(HERE.glob("*.json"))}
    order = sorted(records, key=lambda name: (not of_peers(rows_of(records[name])), name))
    contents = "\n".join(f"- [{title(name)}](#{anchor(title(name))})" for name in order)
    return "\n\n".join([HEAD, contents, *(section(name, records[name]) for name in order)]) + "\n"


def title(name: str) -> str:
    """The first paragraph of the script's docstring."""
    words = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or ""
    return " ".join(words.split("\n\n")[0].split()).rstrip(".")


def anchor(heading: str) -> str:
    """How a Markdown page names a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(name: str, record: Any) -> str:
    """The title, the words, the setting, the table."""
    parts = [f"## {title(name)}", f"Measured again by `python benchmarks/{name}.py --out benchmarks/{name}.json`."]
    if about := figures(record):
        parts.append(table([["figure of the whole", "value"], *([said(key), value] for key, value in about.items())]))
    rows = rows_of(record)
    if of_peers(rows):
        parts += [peers(rows), *floors(rows)]
    else:
        lists = {"": record} if isinstance(record, list) else {k: v for k, v in record.items() if listed(v)}
        for kind, rows in lists.items():
            if len(rows) <= ROWS:
                parts += [f"{said(kind)}:"] * (len(lists) > 1)
                parts.append(
                    table([list(map(said, plain(rows[0]))), *([shown(v) for v in plain(row).values()] for row in rows)])
                )
    return "\n\n".join(parts)


def rows_of(record: Any) -> Sequence[Mapping[str, Any]]:
    return record if isinstance(record, list) else next((v for v in record.values() if listed(v)), [])


def of_peers(rows: Sequence[Mapping[str, Any]]) -> bool:
    return bool(rows) and all("arm" in row for row in rows)


def peers(runs: Sequence[Mapping[str, Any]]) -> str:
    """Median (least - most) of every figure by arm; of two arms also the ratio of their medians."""
    arms = list(dict.fromkeys(run["arm"] for run in runs))
    head = ["median (least - most)", *(f"{arm}, {sum(run['arm'] == arm for run in runs)} runs" for arm in arms)]
    rows = [head + [f"{arms[0]} / {arms[-1]}"] * (len(arms) == 2)]
    for name, value in runs[0].items():
        if name == "seed" or not isinstance(value, int | float):
            continue
        columns = [[float(run[name]) for run in runs if run["arm"] == arm] for arm in arms]
        if not any(map(any, columns)):
            continue
        cells = [f"{shown(statistics.median(c))} ({shown(min(c))} - {shown(max(c))})" for c in columns]
        if len(arms) == 2:
            first, second = map(statistics.median, columns)
            cells.append(f"{first / second:.2f}" if first and second else "")
        rows.append([said(name), *cells])
    return table(rows)


def floors(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each arm whose runs measured floors: the median of each figure that has one, of its floor, and of the ratio run by run."""
    tables = []
    for arm in dict.fromkeys(run["arm"] for run in runs if run.get("floors")):
        own = [run for run in runs if run["arm"] == arm]
        rows = [[f"{arm}: median", "measured", "floor (least possible)", "measured / floor"]]
        for name in own[0]["floors"]:
            measured, floor = ([float(of[name]) for of in side] for side in (own, [run["floors"] for run in own]))
            ratio = statistics.median(a / b for a, b in zip(measured, floor, strict=True))
            rows.append([name, *(shown(statistics.median(side)) for side in (measured, floor)), f"{ratio:.2f}"])
        tables.append(table(rows))
    return tables


def figures(record: Any) -> dict[str, str]:
    """The plain figures about a record, its setting's among them. Digests of weights say nothing to a reader."""
    if isinstance(record, list):
        return {}
    nested = {k: v for value in record.values() if isinstance(value, Mapping) for k, v in flat(value).items()}
    return {k: shown(v) for k, v in {**plain(record), **nested}.items() if not k.endswith("sha256")}


def flat(value: Mapping[str, Any]) -> dict[str, Any]:
    inner = {k: v for part in value.values() if isinstance(part, Mapping) for k, v in flat(part).items()}
    return plain(value) | inner


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if isinstance(value, int | float | str)}


def listed(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) for row in value)


def said(key: str) -> str:
    """A key of a record in words."""
    words = re.sub(r"_per_s$", " per second", key)
    words = re.sub(r"(?<=[a-z])_s$", ", seconds", words)
    return {"exam": "held-out score"}.get(key, words.replace("_", " "))


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
