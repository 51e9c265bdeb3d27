"""benchmarks/doctor.py: the outcome decides what a run counts as, the lot which cases there are, and the record what is said."""

import json
from pathlib import Path

import pytest
import yaml

from gimbal.report.doctor import NOTHING
from gimbal.report.files import Summary

RUN = {
    "policy": {"class": "CausalLM"},
    "held_out": {"class": "HeldOut", "tasks": {"class": "ReasoningGym", "size": 64}, "samples": 4},
}


@pytest.fixture
def benchmark_(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import doctor

    return doctor


def write(directory, after, score=(0.3, 0.3), stopped=False):
    """A run of 16 steps whose evaluation goes from .367 to ``after``, and whose score goes along a straight line."""
    directory.mkdir()
    (directory / "recipe.yaml").write_text(yaml.safe_dump({"recipe": "grpo", "run": RUN}))
    scores = [score[0] + (score[1] - score[0]) * step / 15 for step in range(16)]
    rows = [json.dumps({"step": step + 1, "reward/mean": value}) for step, value in enumerate(scores)]
    (directory / "metrics.jsonl").write_text("\n".join(rows) + "\n")
    Summary(
        recipe="grpo",
        seed=0,
        steps=16,
        seconds_training=1.0,
        tokens_generated=1,
        before={"eval/pass@1": 0.367},
        after={"eval/pass@1": after},
        max_age=0,
        mean_discrepancy=None,
        peak_memory_mb=1.0,
    ).save(directory / "summary.json")
    if stopped:
        (directory / "stopped.json").write_text(json.dumps({"step": 16, "error": "Starved", "sentence": "so it was"}))


@pytest.mark.parametrize(
    ("after", "twin", "expected"), [(0.367, 0.6, "harmed"), (0.53, 0.6, "unharmed"), (0.6, 0.6, "unharmed")]
)
def test_meant_to_be_sick_counts_where_it_ended_below_its_twin(benchmark_, tmp_path, after, twin, expected):
    cases = {case.name: case for case in benchmark_.draw(1)}
    job = benchmark_.Job(case=cases["rate x10 (dr_grpo)"], seed=1, set="fresh", root=tmp_path)
    write(job.directory, after)
    write(job.twin, twin)
    assert benchmark_.state(job, benchmark_.Record(job.directory)) == expected


def test_what_stopped_itself_is_harmed(benchmark_, tmp_path):
    cases = {case.name: case for case in benchmark_.draw(1)}
    job = benchmark_.Job(case=cases["hard (demo)"], seed=1, set="fresh", root=tmp_path)
    write(job.directory, 0.8, stopped=True)
    assert benchmark_.state(job, benchmark_.Record(job.directory)) == "harmed"


@pytest.mark.parametrize(
    ("after", "score", "expected"),
    [
        (0.6, (0.3, 0.3), "learned"),
        (0.4, (0.3, 0.9), "learned"),
        (0.4, (0.3, 0.3), "still"),
        (0.2, (0.3, 0.9), "fell"),
    ],
)
def test_meant_to_be_healthy_counts_where_it_learned(benchmark_, tmp_path, after, score, expected):
    cases = {case.name: case for case in benchmark_.draw(1)}
    job = benchmark_.Job(case=cases["dr_grpo"], seed=1, set="fresh", root=tmp_path)
    write(job.directory, after, score)
    assert benchmark_.state(job, benchmark_.Record(job.directory)) == expected


def test_the_lot_is_the_same_each_time_and_every_sick_run_has_its_twin(benchmark_):
    names = [case.name for case in benchmark_.draw(2)]
    assert names == [case.name for case in benchmark_.draw(2)] != [case.name for case in benchmark_.draw(1)]
    assert len(set(names)) == len(names) and {"cartpole", "pendulum"} <= set(names)
    assert {case.recipe for case in benchmark_.draw(2) if case.expected} <= set(names)


RECORDED = json.loads((Path(__file__).parents[2] / "benchmarks" / "doctor.json").read_text())


def recorded(name, state):
    return [run for run in RECORDED["runs"] if run["set"] == name and run["state"] == state]


def figures(name, key="found"):
    """(harmed runs, those named rightly, runs that learned, those it is silent on)."""
    sick, well = recorded(name, "harmed"), recorded(name, "learned")
    right, silent = sum(run[key] == run["expected"] for run in sick), sum(run[key] == NOTHING for run in well)
    return len(sick), right, len(well), silent


@pytest.mark.parametrize("name", ["first", "second", "third"])
def test_the_pages_say_what_is_recorded(name):
    sick, right, well, silent = figures(name)
    assert (sick, right) == (RECORDED[f"{name} harmed"], RECORDED[f"{name} harmed right"])
    assert (well, silent) == (RECORDED[f"{name} learned"], RECORDED[f"{name} learned silent"])
    root = Path(__file__).parents[2]
    for page in ("docs/doctor.md", "benchmarks/README.md")[name == "first" :]:
        text = (root / page).read_text()
        assert f"{right} of {sick}" in text and f"{silent} of {well}" in text, page


def test_the_bars():
    """On runs that no rule was made on: right on 9 of 10 sick ones, silent on 19 of 20 healthy ones."""
    sick, right, well, silent = figures("third")
    assert sick >= 40 and well >= 20 and 20 * silent >= 19 * well and 10 * right >= 9 * sick
    for name in ("first", "second", "third"):
        sick, right, well, silent = figures(name, "now")
        assert 10 * right >= 9 * sick and 20 * silent >= 19 * well
        runs = recorded(name, "harmed")
        assert len({run["expected"] for run in runs}) >= 12  # kinds
        assert len({run["case"].partition(" (")[2] for run in runs}) >= 8  # recipes
        assert {"cartpole", "pendulum"} <= {run["case"] for run in recorded(name, "learned")}


@pytest.mark.parametrize(("name", "number"), [("first", 1), ("second", 2), ("third", 3)])
def test_the_record_holds_every_case_of_its_draw(benchmark_, name, number):
    """None is left out because it did not suit; what harmed nothing, and what was not run, is told apart."""
    found = [(run["case"], run["seed"], run["expected"]) for run in RECORDED["runs"] if run["set"] == name]
    assert found == [(case.name, number, case.expected) for case in benchmark_.draw(number)]
