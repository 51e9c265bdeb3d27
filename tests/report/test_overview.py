"""What the page says in words."""

from pathlib import Path

import pytest
import yaml
from test_files import conclude, summary
from test_page import make_run

from gimbal.report.arms import RunOnDisk
from gimbal.report.files import JsonLines
from gimbal.report.overview import compared, conclusion, describe, edges, learned, signs
from gimbal.report.record import Change, Point, Record

RECIPE = "recipe: demo\nrun: {{seed: {}, steps: 2, clip: {}}}\n"


NOWHERE = Record(Path("nowhere"))  # nothing on record


def sign(what, metrics, recipe=None):
    return next(item for item in signs(metrics, recipe or {}, NOWHERE) if item["what"] == what)


def change(before, after, error, name="eval/pass@1"):
    ends = Point(step=0, value=before), Point(step=20, value=after)
    return Change(name=name, start=ends[0], end=ends[1], error=error, limit=3.0)


def test_edges_are_tenths():
    assert edges([0.0, 2.0, *[5.0] * 16, 8.0, 10.0]) == (1.0, 9.0)
    assert edges([None, 3.0, None]) == (3.0, 3.0) and edges([None]) is None and edges([]) is None


def test_a_change_within_the_exams_noise_is_no_change():
    exam = summary(before={"eval/pass@1": 0.50}, after={"eval/pass@1": 0.55})
    figure = learned(exam, {}, change(0.5, 0.55, 0.04))
    assert figure["noise"] == pytest.approx(0.12)
    assert "did not change beyond noise" in figure["text"]
    assert "rose from 0.500 to 0.550 (+0.050)" in learned(exam, {}, change(0.5, 0.55, 0.01))["text"]
    worse = summary(before={"eval/pass@1": 0.9}, after={"eval/pass@1": 0.4})
    assert "fell from 0.900 to 0.400 (-0.500)" in learned(worse, {}, change(0.9, 0.4, 0.04))["text"]


def test_what_was_trained_on_is_held_against_what_was_sampled_asked_and_listed():
    metrics = {
        "selection/listed/success": [None, 0.4],
        "selection/asked/success": [0.5, 0.5],
        "selection/sampled/success": [0.3, 0.45],
        "selection/trained/success": [0.3, 0.5],
        "selection/sampled/length": [20.0, 21.04],
        "selection/trained/length": [20.0, 22.0],
        "selection/sampled/difficulty": [0.5, 0.5],
        "selection/lost/zero_variance": [0.2, 0.35],
        "selection/lost/stale": [0.1, 0.0],
    }
    found = sign("selection", metrics)
    assert not found["bad"] and found["text"] == (
        "success 40.0% of the task list, 50.0% asked, 45.0% sampled, 50.0% trained on; length 21.0 sampled, 22.0 trained on; "
        "35.0% of what was sampled lost to zero_variance"
    )
    assert not [item for item in signs({"loss": [1.0]}, {}, NOWHERE) if item["what"] == "selection"]


def test_without_an_exam_training_speaks():
    figure = learned(None, {"pass_rate": [0.25, 0.5, 0.75]}, None)
    assert (figure["before"], figure["after"]) == (0.25, 0.75) and "on training tasks" in figure["text"]
    assert learned(None, {}, None)["after"] is None


def test_returns_speak_where_nothing_can_be_solved():
    figure = learned(
        summary(before={"eval/score": 20.0}, after={"eval/score": 480.0}), {}, change(20.0, 480.0, None, "eval/score")
    )
    assert figure["figure"] == "held-out return (sampled)" and figure["noise"] is None


@pytest.mark.parametrize(
    ("what", "bad", "good"),
    [
        ("loss", {"loss": [0.1, None, 0.1]}, {"loss": [0.1, 0.2, 0.1]}),
        ("discrepancy", {"mismatch/prob_diff": [0.001, 0.2]}, {"mismatch/prob_diff": [0.2, 0.001]}),
        ("weights", {"mismatch/ess_token": [1.0, 0.2]}, {"mismatch/ess_token": [0.2, 0.9]}),
        ("entropy", {"entropy/mean": [1.0, 0.05]}, {"entropy/mean": [1.0, 0.2]}),
        ("length", {"length/truncated_frac": [0.0, 0.7]}, {"length/truncated_frac": [0.7, 0.1]}),
        ("signal", {"reward/zero_std_frac": [0.0, 0.95]}, {"reward/zero_std_frac": [0.95, 0.5]}),
    ],
)
def test_signs_of_trouble(what, bad, good):
    assert sign(what, bad)["bad"] and not sign(what, good)["bad"]


def test_a_fall_is_told_and_nothing_green_stands_beside_it(tmp_path):
    """Of a run whose evaluation went from .470 to .060 the page said that the score was well."""
    recipe = yaml.safe_dump({"recipe": "demo", "run": {"seed": 0, **RUN}})
    directory = make_run(tmp_path / "a", steps=0, recipe=recipe)
    for step in range(1, 25):
        score = 0.5 - 0.02 * step + 0.02 * (-1) ** step
        JsonLines(directory / "metrics.jsonl").append(
            {"step": step, "loss": 0.1, "reward/mean": score, "sync/moved": 0.5}
        )
    conclude(directory, before={"eval/pass@1": 0.47}, after={"eval/pass@1": 0.06})
    runs, _ = describe([RunOnDisk.read(directory)])
    assert [item["what"] for item in runs[0]["signs"] if item["bad"]] == [
        *("evaluation fell", "reward fell", "learning rate too high")
    ]
    assert {item["what"] for item in runs[0]["signs"] if not item["bad"]} == {"loss"}
    text = conclusion(runs)
    assert (
        "fell from 0.470 to 0.060" in text and "Look at: evaluation fell, reward fell" in text and "No sign" not in text
    )
    # The same run with an evaluation that rose: what it won, the score does not take back, but nothing green stands beside the score.
    conclude(directory, before={"eval/pass@1": 0.06}, after={"eval/pass@1": 0.47})
    runs, _ = describe([RunOnDisk.read(directory)])
    assert "rose from 0.060 to 0.470 (+0.410). Look at: reward. 24" in conclusion(runs)


def test_a_drop_that_may_be_chance_gets_no_check_mark_either(tmp_path):
    """2.4 standard errors below the start: too little to call a fall, and no sign of health."""
    tasks = {"class": "ReasoningGym", "size": 64}
    run = RUN | {"held_out": {"class": "HeldOut", "tasks": tasks, "samples": 4}}
    directory = make_run(tmp_path / "a", recipe=yaml.safe_dump({"recipe": "demo", "run": {"seed": 0, **run}}))
    for after, bad in ((0.27, True), (0.36, False)):
        conclude(directory, before={"eval/pass@1": 0.37}, after={"eval/pass@1": after})
        runs, _ = describe([RunOnDisk.read(directory)])
        (mark,) = [item for item in runs[0]["signs"] if item["what"] == "evaluation"]
        assert mark["bad"] is bad and ("Look at: evaluation" in conclusion(runs)) is bad


def test_a_fall_whose_chance_nobody_knows_is_not_passed_over(tmp_path):
    directory = make_run(tmp_path / "a")
    conclude(directory, before={"eval/score": 9.0}, after={"eval/score": 8.0})
    runs, _ = describe([RunOnDisk.read(directory)])
    assert "fell from 9.000 to 8.000" in conclusion(runs) and "Look at: fell." in conclusion(runs)


RUN = {"policy": {"class": "CausalLM"}, "held_out": {"tasks": {"size": 256}, "samples": 4}}


def test_a_control_policy_has_no_groups_and_no_texts_to_judge(tmp_path):
    recipe = yaml.safe_dump(
        {"recipe": "demo", "run": {"policy": {"class": "Categorical", "observations": 4, "actions": 2}}}
    )
    directory = make_run(tmp_path / "a", recipe=recipe)
    row = {
        "step": 3,
        "env_steps": 30.0,
        "reward/zero_std_frac": 1.0,
        "entropy/mean": -2.0,
        "length/truncated_frac": 1.0,
    }
    JsonLines(directory / "metrics.jsonl").append(row)
    assert [item["what"] for item in describe([RunOnDisk.read(directory)])[0][0]["signs"]] == ["loss", "evaluation"]


def test_faults_are_told_and_no_faults_are_not():
    assert sign("faults", {}, {"run.faults.logprob_noise": 0.1})["bad"]
    assert signs({}, {"run.faults": None}, NOWHERE) == []


def told(tmp_path, *runs):
    made = []
    for name, seed, clip, after in runs:
        directory = make_run(tmp_path / name, recipe=f"recipe: demo\nrun: {{seed: {seed}, clip: {clip}}}\n")
        conclude(directory, after={"eval/pass@1": after})
        made.append(RunOnDisk.read(directory))
    described, differs = describe(made)
    return described, differs, conclusion(described)


def test_seeds_of_one_recipe_are_one_family(tmp_path):
    described, differs, text = told(tmp_path, ("a", 0, 0.2, 0.5), ("b", 1, 0.2, 0.7))
    assert [run["family"] for run in described] == [0, 0] and differs == []
    assert (
        text == "One recipe, 2 seeds. The held-out pass@1 (sampled) at the end: demo 0.600 (2 seeds, 0.500 to 0.700). "
        "No sign of trouble in any of them."
    )


def test_the_best_recipe_is_named(tmp_path):
    runs = [("a", 0, 0.2, 0.5), ("b", 1, 0.2, 0.6), ("c", 0, 0.3, 0.7), ("d", 1, 0.3, 0.8)]
    described, differs, text = told(tmp_path, *runs)
    assert differs == ["run.clip"] and described[0]["label"] == "demo (clip=0.2)"
    assert "at the end: demo (clip=0.3) 0.750 (2 seeds, 0.700 to 0.800); next demo (clip=0.2) 0.550" in text


def test_trouble_of_several_runs_is_told_by_recipe(tmp_path):
    for name in ("a", "b"):
        directory = make_run(tmp_path / name, recipe=f"recipe: {name}\nrun: {{seed: 0}}\n")
        if name == "b":
            JsonLines(directory / "metrics.jsonl").append(
                {"step": 3, "tokens": 30.0, "loss": None, "length/truncated_frac": 0.9}
            )
    runs, _ = describe([RunOnDisk.read(tmp_path / name) for name in ("a", "b")])
    assert conclusion(runs).endswith(" Look at b: loss, length.")


def test_the_verdict_is_compares_or_says_why_there_is_none(tmp_path):
    runs = [
        make_run(tmp_path / f"{arm}-s{seed}", recipe=RECIPE.format(seed, clip))
        for arm, clip in (("a", 1), ("b", 2))
        for seed in range(4)
    ]
    for run in runs:
        after = {"eval/pass@1": (0.4 if run.name[0] == "a" else 0.8) + 0.01 * int(run.name[-1])}
        conclude(run, after=after)
    described, _ = describe([RunOnDisk.read(run) for run in runs])
    assert [run["label"] for run in described] == ["a"] * 4 + ["b"] * 4
    assert compared(described, runs).startswith("final pass@1 of b is higher than that of a: 0.82 [")
    few = [run for run in runs if run.name[-1] == "0"]
    assert compared(describe([RunOnDisk.read(run) for run in few])[0], few) == (
        "With one run each, chance cannot be excluded; with 4 it can: --seeds 4."
    )
    (runs[0] / "summary.json").unlink()
    assert "is not finished" in compared(described, runs)


def test_how_a_run_was_recorded_makes_no_other_recipe(tmp_path):
    runs = [
        make_run(tmp_path / f"r-{i}", recipe=f"recipe: demo\nrun: {{seed: {i}, record_every: {i}}}\n") for i in (1, 2)
    ]
    assert [run["family"] for run in describe([RunOnDisk.read(run) for run in runs])[0]] == [0, 0]


def test_runs_of_other_figures_are_judged_by_training(tmp_path):
    ended, going = make_run(tmp_path / "a"), make_run(tmp_path / "b", ended=False)
    described, _ = describe([RunOnDisk.read(ended), RunOnDisk.read(going)])
    assert {run["learned"]["figure"] for run in described} == {"share solved in training"}


def test_a_recipe_with_faults_names_those_that_are_on():
    from gimbal.config import plain
    from gimbal.runtime.faults import Faults

    settings = {f"run.faults.{name}": value for name, value in plain(Faults(token_drift=0.2)).items()}
    assert sign("faults", {}, settings)["text"].endswith("on purpose: token_drift=0.2")


def test_a_loss_that_falls_is_no_trouble_and_the_lowest_is_best():
    supervised = summary(before={"eval/loss": 5.883}, after={"eval/loss": 5.6})
    figure = learned(supervised, {"pass_rate": [0.0, 0.0]}, None, recorded=True)
    assert figure["text"] == "The held-out loss went from 5.883 to 5.600 (-0.283)"
    unfinished = learned(None, {"pass_rate": [0.0, 0.0], "loss": [3.0, 2.0]}, None, recorded=True)
    assert unfinished["figure"] == "training loss" and unfinished["after"] == 2.0


def test_a_step_that_only_fills_a_buffer_has_no_loss_to_be_finite():
    metrics = {
        "loss": [None, None, 1.0, 2.0],
        "grad_norm": [None, None, 1.0, 1.0],
        "replay/moves": [0.0, 0.0, 5.0, 9.0],
    }
    assert not sign("loss", metrics)["bad"]
    assert sign("loss", metrics | {"loss": [None, None, 1.0, None]})["text"] == "not finite in 1 steps"
