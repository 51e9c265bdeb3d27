"""docs/benchmarks.md is what the recorded figures say."""

import importlib.util
import json
import re
import statistics
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("page", ROOT / "benchmarks" / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_current():
    assert (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8") == load().page(), (
        "run: python benchmarks/page.py"
    )


def test_figures_are_those_recorded_and_name_no_machine():
    page = load().page()
    runs = json.loads((ROOT / "benchmarks" / "vs_trl.json").read_text())["runs"]
    trl, ours = ([run["seconds"] for run in runs if run["arm"] == arm] for arm in ("trl", "gimbal"))
    row = re.search(r"\| seconds \| ([\d.]+) \(([\d.]+) - ([\d.]+)\) \| ([\d.]+) .* \| ([\d.]+) \|", page)
    told = [float(figure) for figure in row.groups()]
    expected = [statistics.median(trl), min(trl), max(trl), statistics.median(ours)]
    assert all(abs(a - b) < 0.06 for a, b in zip(told, expected, strict=False))
    assert abs(told[4] - statistics.median(trl) / statistics.median(ours)) < 0.006
    assert not re.search(r"(?i)xeon|epyc|intel|amd |hostname|/tmp|/home", page)


def test_peers_by_hand():
    seconds = {"a": (4.0, 2.0, 9.0), "b": (1.0, 2.0, 3.0)}
    runs = [{"arm": arm, "seed": seed, "s": s} for arm in seconds for seed, s in enumerate(seconds[arm])]
    assert load().peers(runs).splitlines()[2] == "| s | 4 (2 - 9) | 2 (1 - 3) | 2.00 |"


def test_floors_by_hand():
    runs = [{"arm": "a", "s": 1.0, "floors": {}}]
    runs += [{"arm": "b", "s": s, "floors": {"s": floor}} for s, floor in ((2.0, 1.0), (6.0, 2.0), (5.0, 4.0))]
    (table,) = load().floors(runs)
    assert table.splitlines() == [
        "| b: median | measured | floor (least possible) | measured / floor |",
        "|---|---|---|---|",
        "| s | 5 | 2 | 2.00 |",
    ]


def test_each_list_of_a_record_is_a_table_under_its_name():
    one, two = {"k": 0, "error": 0.125}, {"k": 4, "error": -0.25}
    section = load().section("plan", {"local": [one], "ray": [one, two], "speeds": {"step_s": 0.5}})
    assert section.endswith(
        "\n\n".join(
            [
                "| figure of the whole | value |\n|---|---|\n| step, seconds | 0.5 |",
                "local:",
                "| k | error |\n|---|---|\n| 0 | 0.125 |",
                "ray:",
                "| k | error |\n|---|---|\n| 0 | 0.125 |\n| 4 | -0.25 |",
            ]
        )
    )
