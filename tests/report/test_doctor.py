"""The doctor on written records: each signature at its limit and just short of it, in the order of causes; commands that can be run."""

import json
import shlex
import sys
from pathlib import Path

import pytest
import yaml

from gimbal import cli
from gimbal.report.doctor import NOTHING, RULES, examine
from gimbal.report.files import STOPPED, JsonLines
from gimbal.runtime.local import run_local

HEALTHY = {
    "reward/mean": 0.5,
    "pass_rate": 0.5,
    "entropy/sampled": 0.3,
    "length/mean": 20.0,
    "length/truncated_frac": 0.0,
    "mismatch/prob_diff": 0.0005,
    "mismatch/prob_diff/age_above_0": 0.01,
    "mismatch/k3": 2e-5,
    "cause/discrepancy": -1e-4,
    "staleness/mean": 0.0,
    "staleness/share/0": 1.0,
    "grad_norm": 0.4,
    "live_frac": 0.9,
    "kept_frac": 0.9,
    "samples/doubled": 0.0,
    "samples/missing": 0.0,
    "reward/repeats": 5.0,
    "reward/unlike_frac": 0.0,
    "reward/zero_std_frac": 0.1,
}


@pytest.fixture
def record(tmp_path):
    """Writes a run of 12 healthy steps but for these metrics: a value, or (first, last) of a straight line."""

    def write(stopped=None, run=None, steps=12, **changes):
        for name in ("metrics.jsonl", STOPPED):
            (tmp_path / name).unlink(missing_ok=True)
        lines = JsonLines(tmp_path / "metrics.jsonl")
        for step in range(steps):
            row = {"step": step + 1, **HEALTHY}
            for name, value in changes.items():
                first, last = value if isinstance(value, tuple) else (value, value)
                row[name.replace("__", "/")] = first + (last - first) * step / max(1, steps - 1)
            lines.append(row)
        if stopped:
            (tmp_path / STOPPED).write_text(json.dumps({"step": steps, "error": stopped, "sentence": "so it was"}))
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"recipe": "small", "run": run or {"num_generations": 8}}))
        return tmp_path

    return write


def names(directory):
    return [sign.name for sign in examine(directory).signs]


def test_silent_on_a_healthy_run(record):
    diagnosis = examine(record())
    assert diagnosis.name == NOTHING and "12 steps" in diagnosis.text() and "next" not in diagnosis.text()
    # Learning takes entropy, and careful working takes length.
    learned = record(
        entropy__sampled=(0.3, 0.02), length__mean=(20.0, 45.0), pass_rate=(0.3, 0.9), reward__mean=(0.3, 0.9)
    )
    assert names(learned) == []


SICK = {
    "no delivery": [
        ({"sync__failed": 0.1}, {"sync__failed": 0.0}),
        ({"stopped": "NotDelivered"}, {"stopped": "RewardError"}),
    ],
    "not finite": [({"stopped": "NotFinite"}, {"stopped": "KeyError"})],
    "lost samples": [
        ({"samples__doubled": 1.0}, {}),
        ({"samples__missing": 1.0}, {"samples__missing": 1.0, "drops/rollouts/not_finite": 12.0}),
    ],
    "noisy reward": [
        ({"reward__unlike_frac": 0.06}, {"reward__unlike_frac": 0.04}),
        ({"reward__unlike_frac": 0.5, "reward__repeats": 1.0}, {"reward__unlike_frac": 0.5, "reward__repeats": 0.5}),
    ],
    "mismatch": [
        ({"mismatch__k3": 1.1e-3}, {"mismatch__k3": 0.9e-3}),
        ({"cause__discrepancy": -1.1e-3}, {"cause__discrepancy": 1.1e-3}),
        ({"mismatch__k3": 0.1}, {"mismatch__k3": 0.1, "staleness__share__0": 0.5}),
    ],
    "staleness": [
        (
            {"staleness__mean": 4.0, "mismatch__prob_diff__age_above_0": 0.06},
            {"staleness__mean": 4.0, "mismatch__prob_diff__age_above_0": 0.04},
        ),
        (
            {"staleness__mean": 1.6, "mismatch__prob_diff__age_above_0": 0.1},
            {"staleness__mean": 1.0, "mismatch__prob_diff__age_above_0": 0.1},
        ),
    ],
    "length run-away": [
        ({"length__mean": (20.0, 60.0)}, {"length__mean": (20.0, 35.0)}),
        ({"length__truncated_frac": 0.4}, {"length__truncated_frac": 0.2}),
        ({"length__mean": (20.0, 60.0)}, {"length__mean": (20.0, 60.0), "pass_rate": (0.3, 0.6)}),
    ],
    "reward hacking": [
        (
            {"reward__mean": (0.5, 0.9), "pass_rate": (0.5, 0.1)},
            {"reward__mean": (0.5, 0.1), "pass_rate": (0.5, 0.1)},
        )
    ],
    "entropy collapse": [
        ({"entropy__sampled": (0.3, 0.01)}, {"entropy__sampled": (0.3, 0.15)}),
        ({"entropy__sampled": (0.3, 0.01)}, {"entropy__sampled": (0.3, 0.01), "pass_rate": (0.3, 0.6)}),
    ],
    "filter starvation": [
        ({"kept_frac": 0.2}, {"kept_frac": 0.3}),
        ({"stopped": "Starved"}, {}),
        ({"kept_frac": 0.2}, {"kept_frac": 0.2, "pass_rate": 0.97}),
    ],
    "dead gradient": [
        ({"grad_norm": 0.0}, {"grad_norm": 1e-3}),
        ({"live_frac": 0.005}, {"live_frac": 0.02}),
        ({"grad_norm": 0.0, "steps": 4}, {"grad_norm": 0.0, "steps": 3}),
        ({"grad_norm": 0.0}, {"grad_norm": 0.0, "pass_rate": 0.97}),
    ],
}


@pytest.mark.parametrize(("name", "pair"), [(name, pair) for name, pairs in SICK.items() for pair in pairs])
def test_a_signature_beyond_its_limit_and_short_of_it(record, name, pair):
    beyond, short = pair
    assert names(record(**beyond)) == [name]
    assert names(record(**short)) == []


def test_every_rule_has_a_signature_here():
    assert {rule.__name__.replace("_", " ").replace("runaway", "run-away") for rule in RULES} == set(SICK)


def test_causes_come_before_effects_and_all_are_told(record):
    directory = record(grad_norm=0.0, entropy__sampled=(0.3, 0.001), mismatch__k3=0.2, sync__failed=1.0)
    assert names(directory) == ["no delivery", "mismatch", "entropy collapse", "dead gradient"]
    diagnosis = examine(directory)
    assert diagnosis.text().count("next:") == 1 and "0.2" in diagnosis.text()
    assert json.loads(diagnosis.json())["name"] == "no delivery"


def test_the_noise_of_a_short_or_restless_run_is_no_trend(record):
    assert names(record(steps=6, entropy__sampled=(0.3, 0.0), length__mean=(10.0, 60.0))) == []
    directory = record()
    lines = JsonLines(directory / "metrics.jsonl")
    rows = lines.read()
    (directory / "metrics.jsonl").unlink()
    for row in rows:  # the score jumps from step to step by more than it moves
        row |= {
            "reward/mean": 0.5 + 0.4 * (-1) ** row["step"] + 0.01 * row["step"],
            "pass_rate": 0.6 - 0.02 * row["step"],
        }
        lines.append(row)
    assert names(directory) == []


def test_the_exact_anchor_makes_every_step_speak_of_the_sampler(record):
    stale = {"mismatch__k3": 0.1, "staleness__share__0": 0.0}
    assert names(record(**stale)) == []
    assert names(record(**stale, run={"anchor": {"class": "SamplingVersion"}})) == ["mismatch"]


def test_what_left_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="take a step first"):
        examine(tmp_path)


def test_the_faults_of_the_recipe_are_not_read(record):
    run = {"faults": {"class": "Faults", "lost_syncs": 1.0}, "num_generations": 8}
    assert names(record(run=run)) == []


def test_every_proposed_experiment_is_a_command_that_starts(record, small_recipe, capsys):
    for name, pairs in SICK.items():
        directory = record(**pairs[0][0], run=small_recipe)
        (sign,) = examine(directory).signs
        assert sign.name == name
        words = shlex.split(sign.experiment)
        assert words[0] == "gimbal"
        if words[1] == "train":
            assert cli.main([*words[1:], "--dry-run"]) == 0, (sign.experiment, capsys.readouterr().err)
        else:
            assert words[1:2] == ["doctor"] and "--engine" in words


@pytest.fixture
def small_recipe():
    from gimbal import config, recipes

    return config.plain(recipes.load("grpo", {}))


@pytest.mark.slow
def test_a_real_run_from_the_shell(single_thread, tmp_path, capsys):
    sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
    from small import small_run

    from gimbal import config

    run = small_run(steps=1)
    run_local(run, tmp_path)
    config.save(config.dump(run, "grpo"), tmp_path / config.RECIPE_FILE)
    capsys.readouterr()
    assert cli.main(["doctor", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == NOTHING
    words = ["doctor", str(tmp_path), "--engine", "native:int8", "--against", "native:float32", "--rollouts", "3"]
    assert cli.main(words) == 0
    text = capsys.readouterr().out
    assert "numerics" in text and "worst decisions" in text and "FAILED" not in text
    assert cli.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    parts = [value for cause, value in found["mean"].items() if cause != "total"]
    assert sum(parts) == pytest.approx(found["mean"]["total"], abs=1e-6)
    assert sum(found["histogram"].values()) == found["decisions"] and all(test["passed"] for test in found["tests"])


def test_wrong_words_are_refused_in_a_sentence(tmp_path, capsys):
    (tmp_path / "spoilt").mkdir()
    (tmp_path / "spoilt" / "recipe.yaml").write_text("{{")
    for words, said in (
        (["doctor"], "one run or one checkpoint"),
        (["doctor", "nowhere"], "there is no run nowhere"),
        (["doctor", str(tmp_path / "spoilt")], "recipe.yaml is not readable as yaml"),
        (["doctor", str(tmp_path), "--against", "native:int8"], "name it: --engine"),
        (["doctor", str(tmp_path), "--engine", "native:int8"], "lies in no run"),
    ):
        assert cli.main(words) == 2
        assert said in capsys.readouterr().err


def test_the_recorded_benchmark_holds_what_is_said_of_it():
    file = Path(__file__).parent.parent.parent / "benchmarks" / "doctor.json"
    report = json.loads(file.read_text())
    counted = [run for run in report["runs"] if "faint" not in run["case"]]
    sick = [run["found"] == run["expected"] for run in counted if run["expected"]]
    silent = [run["found"] == NOTHING for run in counted if not run["expected"]]
    assert (len(sick), len(silent)) == (report["sick"], report["healthy"]) == (63, 20)
    assert (sum(sick), sum(silent)) == (report["right"], report["silent"])
    assert sum(sick) >= 0.9 * len(sick) and sum(silent) >= 0.95 * len(silent)
    assert {run["expected"] for run in counted if run["expected"]} == set(SICK) - {"not finite"}
