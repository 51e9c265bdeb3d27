"""Writes docs/benchmarks.md from the recorded benchmarks/*.json: `python benchmarks/page.py`; a test holds the page against it.

A record is one of three: ``runs`` of several ``arm`` (the same work done by peers, in turns), lists of rows, or plain
figures. The words of a section are the first paragraph of its script's docstring.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # this file is run, and read by a test, by its path
from words import ARMS, CASES, FIGURES, GROUPS, NAMES, PAIRS, RESULTS, TITLES

from gimbal.ops.confidence import student_width

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
FIGURE = HERE.parent / "docs" / "benchmarks.svg"
HEAD = """# Benchmarks

Written by benchmarks/page.py from what the scripts recorded. Where a section does not say otherwise, a comparison was measured in one
run of one script, both sides taking turns on the same machine, which is named by its cores only;
[benchmarks/README.md](../benchmarks/README.md) says what was held equal. Figures of one table can be compared with each other, not
with those of another machine.

![Time beside TRL, tokens a second, rollouts a second: medians, and from the least to the most](benchmarks.svg)"""
WIDE, LABEL = 720, 190  # of the figure, and of its column of names
ROWS = 40  # most rows of a table; of a longer record only the figures about it are shown


def page() -> str:
    records = recorded()
    contents = "\n".join(f"- [{TITLES[name]}](#{anchor(TITLES[name])})" for name in records)
    return "\n\n".join([HEAD, contents, *(section(name, record) for name, record in records.items())]) + "\n"


def recorded() -> dict[str, Any]:
    """The records by the names of their scripts, in the order of the page."""
    found = {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in HERE.glob("*.json")}
    if unnamed := sorted(set(found) - set(TITLES)):
        raise ValueError(f"benchmarks/words.py has no title for {', '.join(unnamed)}")
    return {name: found[name] for name in TITLES if name in found}


def words_of(name: str) -> str:
    """The first paragraph of the script's docstring."""
    words = ast.get_docstring(ast.parse(script(name).read_text(encoding="utf-8"))) or ""
    return " ".join(words.split("\n\n")[0].split()).replace("``", "`").rstrip(".") + "."


def script(name: str) -> Path:
    """What wrote a record; one of a GPU, or of another case, is its script's too."""
    own = HERE / f"{name}.py"
    return own if own.is_file() else HERE / f"{name.rpartition('_')[0]}.py"


def anchor(heading: str) -> str:
    """How a Markdown page names a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def section(name: str, record: Any) -> str:
    """The title, the words, the setting, the table."""
    parts = [f"## {TITLES.get(name, name)}"]
    if (file := script(name)).is_file():
        case = f" {name.rpartition('_')[2]}" if name in CASES else ""
        parts.append(
            f"{words_of(name)} Run it again with `python benchmarks/{file.name}{case} --out benchmarks/{name}.json`."
        )
    about = figures(record)
    tried = trials(about)
    results = {key: value for key, value in about.items() if key in RESULTS}
    if setting := [
        f"{key.replace('_', ' ')} {value}" for key, value in about.items() if key not in RESULTS and not tried
    ]:
        parts.append(f"Setting: {'; '.join(setting)}.")
    if results:
        parts.append(table([["result", "value"], *([RESULTS[key], value] for key, value in results.items())]))
    parts += [tried] if tried else []
    rows = rows_of(record)
    if of_peers(rows):
        parts += [peers(rows), *pairs(name, rows), *floors(rows)]
    else:
        lists = {"": record} if isinstance(record, list) else {k: v for k, v in record.items() if listed(v)}
        for kind, rows in lists.items():
            if len(rows) <= ROWS:
                parts += [f"{GROUPS.get(kind, said(kind))}:"] * (len(lists) > 1)
                parts.append(
                    table([list(map(said, plain(rows[0]))), *([shown(v) for v in plain(row).values()] for row in rows)])
                )
    return "\n\n".join(parts)


def trials(about: Mapping[str, str]) -> str:
    """Of the doctor: for each set of runs how many were sick and named rightly, and how many healthy and left alone."""
    sets = list(dict.fromkeys(key.split()[0] for key in about if key.endswith(" harmed")))
    if not sets:
        return ""
    rows = [["set of runs", "sick", "right cause first", "learned, healthy", "left alone"]]
    keys = ("harmed", "harmed right", "learned", "learned silent")
    return table(rows + [[name, *(about.get(f"{name} {key}", "") for key in keys)] for name in sets])


def rows_of(record: Any) -> Sequence[Mapping[str, Any]]:
    return record if isinstance(record, list) else next((v for v in record.values() if listed(v)), [])


def of_peers(rows: Sequence[Mapping[str, Any]]) -> bool:
    return bool(rows) and all("arm" in row for row in rows)


def peers(runs: Sequence[Mapping[str, Any]]) -> str:
    """Median (least - most) of every figure by arm; of two arms also the ratio of their medians."""
    arms = list(dict.fromkeys(run["arm"] for run in runs))
    called = [ARMS.get(arm, arm) for arm in arms]
    head = ["median (least - most)"]
    head += [f"{name}, {sum(run['arm'] == arm for run in runs)} runs" for arm, name in zip(arms, called, strict=True)]
    rows = [head + [f"{called[0]} / {called[-1]}"] * (len(arms) == 2)]
    for name, value in runs[0].items():
        if name == "seed" or not isinstance(value, int | float):
            continue
        columns = [[float(run[name]) for run in runs if run["arm"] == arm] for arm in arms]
        if not any(map(any, columns)):
            continue
        cells = [f"{shown(statistics.median(c))} ({shown(min(c))} - {shown(max(c))})" for c in columns]
        if len(arms) == 2:
            first, second = map(statistics.median, columns)
            cells.append(f"{first / second:.2f}" if min(first, second) > 0 else "")
        rows.append([said(name), *cells])
    return table(rows)


def pairs(name: str, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each figure of PAIRS: how the arms differ at the same seed, over all seeds that both have."""
    rows = []
    for told, *which in PAIRS.get(name, ()):
        if which[0] not in runs[0]:  # a record from before the figure was
            continue
        found = paired(runs, *which)
        middle, half = mean_of(found)
        digits = 2 if which[-1] == "ratio" else 3
        ends = (middle, middle - half, middle + half, statistics.median(found), min(found), max(found))
        rows.append([told, str(len(found)), *(f"{value:{'' if digits == 2 else '+'}.{digits}f}" for value in ends)])
    heads = ["at equal seeds", "pairs", "mean", "95 % (Student's t), from", "to", "median", "least", "most"]
    return [table([heads, *rows])] if rows else []


def paired(runs: Sequence[Mapping[str, Any]], key: str, arm: str, other: str, how: str) -> list[float]:
    """The ratio or the difference of a figure of two arms, seed by seed."""
    of = {(run["arm"], run["seed"]): float(run[key]) for run in runs}
    both = [
        (value, of[other, seed]) for (name, seed), value in sorted(of.items()) if name == arm and (other, seed) in of
    ]
    return [one / two if how == "ratio" else one - two for one, two in both]


def mean_of(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and half of its 95 % interval by Student's t."""
    return statistics.fmean(values), statistics.stdev(values) * student_width(len(values), 0.025)


def floors(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each arm whose runs measured floors: the median of each figure that has one, of its floor, and of the ratio run by run."""
    tables = []
    for arm in dict.fromkeys(run["arm"] for run in runs if run.get("floors")):
        own = [run for run in runs if run["arm"] == arm]
        rows = [[f"{arm}: median", "measured", "floor (least possible)", "measured / floor"]]
        for name in own[0]["floors"]:
            measured, floor = ([float(of[name]) for of in side] for side in (own, [run["floors"] for run in own]))
            ratio = statistics.median(a / b for a, b in zip(measured, floor, strict=True))
            rows.append([said(name), *(shown(statistics.median(side)) for side in (measured, floor)), f"{ratio:.2f}"])
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
    return NAMES.get(key) or re.sub(r"(?<=[a-z])_s$", ", s", key).replace("_", " ")


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def figure() -> str:
    """A panel of bars for each record of FIGURES: the median of each arm, and a line from its least to its most."""
    records, parts, top = recorded(), [], 0
    for name, (heading, key) in FIGURES.items():
        runs = rows_of(records[name])
        arms = {
            arm: [float(run[key]) for run in runs if run["arm"] == arm] for arm in dict.fromkeys(r["arm"] for r in runs)
        }
        parts.append(f'<text x="0" y="{top + 16}" font-weight="600">{heading}</text>')
        scale = (WIDE - LABEL - 70) / max(max(values) for values in arms.values())
        for place, (arm, values) in enumerate(arms.items()):
            y, mid = top + 28 + 24 * place, statistics.median(values)
            ours = arm.startswith(("gimbal", "native", "async"))
            parts += [
                f'<text x="{LABEL - 8}" y="{y + 13}" text-anchor="end">{ARMS.get(arm, arm)}</text>',
                f'<rect x="{LABEL}" y="{y}" width="{mid * scale:.1f}" height="17" rx="2" fill="{"#3b6fb6" if ours else "#a8adb5"}"/>',
                f'<path d="M{LABEL + min(values) * scale:.1f} {y + 8.5}H{LABEL + max(values) * scale:.1f}" stroke="#222"/>',
                f'<text x="{LABEL + max(values) * scale + 6:.1f}" y="{y + 13}">{shown(mid)}</text>',
            ]
        top += 28 + 24 * len(arms) + 22
    style = 'font-family="system-ui, sans-serif" font-size="13" fill="#222"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {top}" {style}>\n'
        f'<rect width="{WIDE}" height="{top}" fill="#fff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    FIGURE.write_text(figure(), encoding="utf-8")
