"""Runs whose rewards only measure: a distance is no pass rate, and a sum of nothing no score."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from made import group, rollout

import gimbal
from gimbal.records import Task
from gimbal.report.arms import RunOnDisk
from gimbal.report.console import Console
from gimbal.report.doctor import diagnose
from gimbal.report.files import JsonLines, Summary
from gimbal.report.held_out import figures
from gimbal.report.metrics import rollout_metrics
from gimbal.report.overview import describe
from gimbal.report.overview import graded as graded_only
from gimbal.report.record import Change, Point
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.rewards.one_of import OneOf
from gimbal.rewards.scoring import decided, weighed
from gimbal.rewards.tokens_per_pass import TokensPerPass

ROW = {
    "step": 1.0,
    "reward/mean": 0.0,
    "reward/data/mean": 2.0,
    "reward/data/distance": 2.0,
    "reward/data/coverage": 0.1,
}
BEFORE = {"eval/score": 0.0, "eval/greedy_score": 0.0, "eval/data/distance": 2.5, "eval/greedy_data/distance": 2.4}


def test_the_first_reward_decides_unless_it_is_a_distance_a_rate_or_a_logit():
    for measure in (DigitDistance(), TokensPerPass(), DigitClass(scale="logit")):
        assert not decided((measure, OneOf()))
        assert decided((OneOf(), measure))
    assert not weighed((DigitDistance(), TokensPerPass(weight=0.0)))
    assert weighed((DigitDistance(), OneOf())) and weighed(())


def test_a_step_without_a_deciding_reward_has_no_pass_rate_but_the_share_of_answers_cut_off():
    task = Task(id="t")
    metrics = rollout_metrics([group(task, rollout(task, scores={"data": 2.0}))], judged=False, answers=True)
    assert "pass_rate" not in metrics and "length/correct" not in metrics and "length/truncated_frac" in metrics


def test_the_lines_of_a_run_that_only_measures(capsys):
    console = Console(2, "dmd2", paid=False)
    console.step(ROW)
    console.before(BEFORE)
    line, before = capsys.readouterr().out.splitlines()
    assert "data/distance 2.000  data/coverage 0.100" in line and "reward" not in line and "pass rate" not in line
    assert "held-out data/distance (smaller is better) 2.500" in before and "score" not in before


def test_the_lines_of_a_run_that_is_judged_but_not_paid(capsys):
    Console(2, "opd", paid=False).step(ROW | {"pass_rate": 0.5})
    line = capsys.readouterr().out
    assert "data/distance 2.000" in line and "pass rate 0.500" in line and "reward" not in line
    assert list(figures(BEFORE | {"eval/pass@1": 0.5}, BEFORE | {"eval/pass@1": 0.5}))[:2] == [
        "eval/pass@1",
        "eval/data/distance",
    ]


def test_a_run_that_is_paid_shows_its_score_as_before():
    paid = BEFORE | {"eval/score": 0.4, "eval/pass@1": 0.5}
    assert list(figures(paid, paid)) == ["eval/pass@1", "eval/score", "eval/greedy_score"]
    assert list(figures({"eval/score": 0.0}, {"eval/score": 0.0})) == ["eval/score"]  # a return of 0


def measured(directory: Path, distances: list[float], before: float, after: float, seed: int = 0) -> Path:
    """A run that was only measured, by a distance: in training by ``distances``, one a step, and before and after it."""
    directory.mkdir(parents=True)
    held_out = {"tasks": {"class": "Conditions", "seed": 2, "size": 200}, "samples": 1}
    run = {"seed": seed, "steps": len(distances), "held_out": held_out, "rewards": [{"class": "DigitDistance"}]}
    (directory / "recipe.yaml").write_text(yaml.dump({"recipe": "dmd2", "run": run}))
    for step, distance in enumerate(distances, start=1):
        row = {"step": step, "decisions": step, "time/step": 1.0, "reward/std": 0.0, "kept_frac": 1.0, "grad_norm": 1.0}
        figures = {"reward/data/mean": distance, "reward/data/distance": distance}
        JsonLines(directory / "metrics.jsonl").append(ROW | row | figures)
    Summary(
        recipe="dmd2",
        seed=seed,
        steps=len(distances),
        seconds_training=1.0,
        tokens_generated=1,
        before=BEFORE | {"eval/data/distance": before},
        after=BEFORE | {"eval/data/distance": after},
        max_age=0,
        mean_discrepancy=None,
        peak_memory_mb=1.0,
    ).save(directory / "summary.json")
    return directory


DOWN, UP = [5.0 - 0.1 * n for n in range(24)], [2.0 + 0.2 * n for n in range(24)]


def test_a_distance_that_shrinks_is_learned_and_one_that_doubles_is_a_fall(tmp_path):
    better = diagnose(measured(tmp_path / "better", DOWN, 5.0, 2.7))
    assert not better.signs
    assert "held-out data/distance (smaller is better) to its best, at the end: 5.000 (before step 1)" in better.text()
    assert "score" not in better.text() and "data/distance (smaller is better) 3.25" in better.text()
    worse = diagnose(measured(tmp_path / "worse", UP, 2.0, 6.6))
    assert [sign.name for sign in worse.outcomes] == ["evaluation fell", "reward fell"]
    assert "held-out data/distance (smaller is better) went from 2.000 (before step 1) to 6.600" in worse.text()
    assert "data/distance (smaller is better) went from 2." in worse.outcomes[1].evidence


def test_a_distance_that_stays_is_nothing_learned(tmp_path):
    """The sum of rewards that only measure is always 0, which is no reason to say so of a run whose distance shrinks."""
    long = [4.0 + 0.01 * (7 * n % 5) for n in range(80)]
    same = diagnose(measured(tmp_path / "same", long, 4.0, 4.0))
    assert (
        same.name.startswith("nothing learned")
        and "held-out data/distance (smaller is better) went from" in same.text()
    )


def test_runs_are_compared_by_what_they_measure(tmp_path):
    for name, curve, after in (("near", DOWN, 2.7), ("far", UP, 6.6)):
        for seed in range(5):
            measured(tmp_path / f"{name}-s{seed}", curve, 4.0, after + seed / 100, seed)
    sides = {name: str(tmp_path / f"{name}-s*") for name in ("near", "far")}
    found = gimbal.compare(sides)
    assert (
        found.metric == "eval/data/distance"
        and "final data/distance of near is lower than that of far" in found.verdict
    )
    assert found.pairs[0].improvement.value == 1.0 and found.pairs[0].difference.value < 0
    assert "data/distance is better the smaller it is" in str(found) and not found.thresholds
    assert json.dumps(found.arms[0].curve) != "[]"  # over training, by the same figure
    with pytest.raises(ValueError, match="leave out --threshold"):
        gimbal.compare(sides, threshold=3.0)


def test_the_page_calls_the_lowest_distance_best(tmp_path):
    from gimbal.report.overview import conclusion, learned

    figure = "held-out data/distance (smaller is better)"
    runs = [
        {"family": n, "label": name, "signs": [], "learned": {"figure": figure, "after": after}}
        for n, (name, after) in enumerate((("near", 2.7), ("far", 6.6)))
    ]
    assert conclusion(runs) == f"Lowest {figure} at the end: near 2.700; next far 6.600."
    alone = learned(None, {"reward/mean": [0.0, 0.0], "reward/data/distance": [3.0, 2.0]}, None)
    assert alone["text"].startswith("The data/distance in training (smaller is better) went from 3.000 to 2.000")


def test_of_pictures_without_a_reward_no_score_is_recorded():
    drawn = [group(Task(id="t"), rollout(Task(id="t")))]
    found = rollout_metrics(drawn, judged=False, answers=False, paid=False)
    assert not [name for name in found if name.startswith("reward/")] and "length/mean" in found
    assert {"length/mean"} == {name for name in rollout_metrics(drawn, answers=False) if name.startswith("length/")}


def test_a_run_in_which_nothing_reached_1_is_shown_by_its_score(tmp_path):
    """Its page had the curve of what is solved first, 0 throughout."""
    never = {"eval/score": 0.1, "eval/greedy_score": 0.1, "eval/pass@1": 0.0, "eval/greedy": 0.0}

    def shown(name: str, shares: list[float]) -> tuple[dict, bool]:
        directory = measured(tmp_path / name, [2.0] * len(shares), 2.0, 2.0)
        (directory / "metrics.jsonl").unlink()
        for step, share in enumerate(shares, 1):
            graded = {"step": step, "reward/mean": 0.1 * step, "pass_rate": share, "eval/pass@1": share}
            JsonLines(directory / "metrics.jsonl").append(graded)
        saved = Summary.load(directory / "summary.json")
        replace(saved, before=never, after=never | {"eval/score": 0.4}).save(directory / "summary.json")
        run = RunOnDisk.read(directory)
        return describe([run])[0][0], graded_only([run])

    page, graded = shown("graded", [0.0] * 4)
    assert graded and "held-out score (sampled) rose from 0.100 to 0.400" in page["learned"]["text"]
    assert "reward/mean" in page["metrics"] and not {"pass_rate", "eval/pass@1"} & page["metrics"].keys()
    page, graded = shown("once", [0.0, 0.0, 0.5, 0.0])
    assert not graded and {"pass_rate", "eval/pass@1"} <= page["metrics"].keys()


def test_an_end_that_is_better_than_all_before_is_no_way_from_the_best():
    start, end = Point(step=8, value=0.108), Point(step=12, value=0.258)
    rose = Change(name="reward/mean", start=start, end=end, error=None, limit=4.0)
    assert rose.of_best == "to its best, at the end: 0.108 (step 8) to 0.258 (step 12)"
    fell = Change(name="reward/mean", start=end, end=start, error=None, limit=4.0)
    assert fell.of_best.startswith("from its best to the end: 0.258")
