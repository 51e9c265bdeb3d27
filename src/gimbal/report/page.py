"""report.html: a run on one page that opens offline, from disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gimbal.report.console import verdict
from gimbal.report.files import JsonLines, Summary

ASSETS = Path(__file__).parent / "assets"
ROLLOUTS = 400  # newest rollouts shown on the page; all that were recorded are in rollouts.jsonl


def write_report(directory: Path) -> Path:
    """report.html from whatever the run has written so far: metrics, and perhaps a summary, a recipe and rollouts."""
    page = (ASSETS / "report.html").read_text(encoding="utf-8")
    parts = {
        "title": _escaped(directory.name),
        "uplot_css": (ASSETS / "uPlot.min.css").read_text(encoding="utf-8"),
        "css": (ASSETS / "report.css").read_text(encoding="utf-8"),
        "uplot_js": (ASSETS / "uPlot.iife.min.js").read_text(encoding="utf-8"),
        "js": (ASSETS / "report.js").read_text(encoding="utf-8"),
        "data": _script_safe(_data(directory)),
    }
    for name, text in parts.items():
        page = page.replace("{{" + name + "}}", text, 1)
    path = directory / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _data(directory: Path) -> dict[str, Any]:
    rows = JsonLines(directory / "metrics.jsonl").read()
    summary, recipe = directory / "summary.json", directory / "recipe.yaml"
    names = sorted({name for row in rows for name in row if name != "step"})
    return {
        "name": directory.name,
        "words": verdict(Summary.load(summary)) if summary.is_file() else ["The run has not ended."],
        "steps": [row["step"] for row in rows],
        "metrics": {name: [row.get(name) for row in rows] for name in names},
        "rollouts": JsonLines(directory / "rollouts.jsonl").read()[-ROLLOUTS:],
        "recipe": recipe.read_text(encoding="utf-8") if recipe.is_file() else "",
    }


def _script_safe(data: Any) -> str:
    """JSON that no text of a model can break out of: within a script element only ``<`` could."""
    return (
        json.dumps(data, ensure_ascii=False)
        .replace("<", "\\u003c")
        .replace("\u2028", "\\u2028")
        .replace("\u2029", "\\u2029")
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
