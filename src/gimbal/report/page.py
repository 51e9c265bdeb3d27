"""report.html: a run on one page that opens offline, from disk."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gimbal.report.console import cost
from gimbal.report.files import JsonLines, Summary

ASSETS = Path(__file__).parent / "assets"
DECISIONS = 200_000  # most decisions of rollouts on the page; all that were recorded are in rollouts.jsonl


def write_report(directory: Path) -> Path:
    """report.html from whatever the run has written so far: metrics, and perhaps a summary, a recipe and rollouts."""
    files = {"uplot_css": "uPlot.min.css", "css": "report.css", "uplot_js": "uPlot.iife.min.js", "js": "report.js"}
    parts = {name: (ASSETS / file).read_text(encoding="utf-8") for name, file in files.items()}
    parts |= {"title": html.escape(directory.name), "data": _script_safe(_data(directory))}
    template = (ASSETS / "report.html").read_text(encoding="utf-8")
    path = directory / "report.html"
    path.write_text(re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template), encoding="utf-8")
    return path


def _data(directory: Path) -> dict[str, Any]:
    rows = JsonLines(directory / "metrics.jsonl").read()
    file, recipe = directory / "summary.json", directory / "recipe.yaml"
    summary = Summary.load(file) if file.is_file() else None
    names = sorted({name for row in rows for name in row if name != "step"})
    return {
        "name": directory.name,
        "words": cost(summary) if summary else [f"The run has not ended; {len(rows)} of its steps are recorded."],
        "exam": _exam(summary) if summary else [],
        "steps": [row["step"] for row in rows],
        "metrics": {name: [row.get(name) for row in rows] for name in names},
        "rollouts": _spread(JsonLines(directory / "rollouts.jsonl").read()),
        "recipe": recipe.read_text(encoding="utf-8") if recipe.is_file() else "",
    }


def _exam(summary: Summary) -> list[tuple[str, float | None, float | None]]:
    """(figure, before, after), in the order of the exam."""
    names = {**summary.before, **summary.after}
    return [(name.removeprefix("eval/"), summary.before.get(name), summary.after.get(name)) for name in names]


def _spread(rollouts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rollouts, or those of steps spread evenly over the run, its first and last among them."""
    steps = sorted({row["step"] for row in rollouts})
    decisions = sum(len(row["pieces"]) for row in rollouts)
    count = max(2, DECISIONS * len(steps) // max(1, decisions))
    if count < len(steps):
        steps = [steps[i * (len(steps) - 1) // (count - 1)] for i in range(count)]
    return [row for row in rollouts if row["step"] in set(steps)]


def _script_safe(data: Any) -> str:
    """JSON in ASCII that no text of a model can break out of: within a script element only ``<`` could."""
    return json.dumps(data).replace("<", "\\u003c")
