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
    assert (ROOT / "docs" / "benchmarks.svg").read_text(encoding="utf-8") == load().figure()


def test_figures_are_those_recorded_and_name_no_machine():
    page = load().page()
    runs = json.loads((ROOT / "benchmarks" / "vs_trl.json").read_text())["runs"]
    trl, ours = ([run["seconds"] for run in runs if run["arm"] == arm] for arm in ("trl", "gimbal"))
    row = re.search(r"\| time, s \| ([\d.]+) \(([\d.]+) - ([\d.]+)\) \| ([\d.]+) .* \| ([\d.]+) \|", page)
    told = [float(figure) for figure in row.groups()]
    expected = [statistics.median(trl), min(trl), max(trl), statistics.median(ours)]
    assert all(abs(a - b) < 0.06 for a, b in zip(told, expected, strict=False))
    assert abs(told[4] - statistics.median(trl) / statistics.median(ours)) < 0.006
    assert not re.search(r"(?i)xeon|epyc|intel|amd |hostname|/tmp|/home", page)


def test_peers_by_hand():
    seconds = {"a": (4.0, 2.0, 9.0), "b": (1.0, 2.0, 3.0)}
    runs = [{"arm": arm, "seed": seed, "s": s} for arm in seconds for seed, s in enumerate(seconds[arm])]
    assert load().peers(runs).splitlines()[2] == "| s | 4 (2 - 9) | 2 (1 - 3) | 2.00 |"


def test_pairs_by_hand():
    page, which = load(), ("s", "a", "b", "ratio")
    runs = [
        {"arm": arm, "seed": seed, "s": s}
        for arm, seed, s in (("b", 1, 2.0), ("a", 1, 4.0), ("a", 0, 3.0), ("b", 0, 1.0), ("a", 2, 9.0))
    ]
    assert page.paired(runs, *which) == [3.0, 2.0], "seed 2 has no other side"
    assert page.paired(runs, *which[:3], "difference") == [2.0, 2.0]
    middle, half = page.mean_of([1.0, 2.0, 3.0])
    assert middle == 2.0 and abs(half - 4.302653 / 3**0.5) < 1e-5


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
                "Setting: step s 0.5.",
                "local:",
                "| max_staleness | error |\n|---|---|\n| 0 | 0.125 |",
                "Forecasts of runs on Ray:",
                "| max_staleness | error |\n|---|---|\n| 0 | 0.125 |\n| 4 | -0.25 |",
            ]
        )
    )


def test_every_key_that_is_shown_has_words():
    """A key that a script records newly would stand raw on the page."""
    page = load()
    for name, record in page.recorded().items():
        lists = [record] if isinstance(record, list) else [value for value in record.values() if page.listed(value)]
        keys = {
            key
            for rows in lists
            if len(rows) <= page.ROWS or page.of_peers(rows)
            for row in rows
            for key in page.plain(row)
        }
        assert keys - {"arm", "seed"} <= set(page.NAMES), name
    headers = re.findall(r"^(\| .*\|)\n\|---", page.page(), re.MULTILINE)
    assert len(headers) > 15 and not [
        head
        for head in headers
        if re.search(r"[a-z]_[a-z]", head.replace("max_staleness", "").replace("generate_batch", ""))
    ]
