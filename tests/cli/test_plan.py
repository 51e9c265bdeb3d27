"""gimbal plan, as it is typed."""

import json
import re
import resource
import subprocess
import sys
from dataclasses import replace

import pytest

from gimbal.cli import main

SPEEDS = ["speeds.step_s=0.02", "speeds.row_s=1e-4", "speeds.train_token_s=1e-4", "speeds.sync_s=1", "speeds.load_s=1"]
SMALL = [
    *SPEEDS,
    "samplers=2",
    "prompts_per_step=2",
    "num_generations=4",
    "slots=8",
    "lengths=LogNormal(mean=100.0, cv=1.0)",
    "steps=3",
]


def test_an_admission_below_the_bound_is_recommended_by_its_name(capsys):
    for words, named in (((), False), (("admission=2",), True), (("admission=20",), False)):
        assert main(["plan", *SMALL, "max_staleness=6", *words, "--schedule", "serial"]) == 0
        assert (" staleness.admission=2:" in capsys.readouterr().out) is named


def test_a_table_and_one_sentence(capsys):
    assert main(["plan", *SMALL]) == 0
    out = capsys.readouterr().out
    for name in ("serial", "sync", "one-step-off", "bounded-async", "partial-rollout"):
        assert re.search(rf"^  {name} +\d", out, re.MULTILINE), name
    recommended = out.strip().splitlines()[-1]
    assert recommended.startswith("Recommended: ")
    age = float(re.search(r"mean age ([\d.]+)", recommended)[1])
    assert ("At that age expect" in recommended) == (age >= 0.1)


def test_the_price_of_old_data_is_said(capsys):
    slow_trainer = [word for word in SMALL if not word.startswith("speeds.train_token_s")] + [
        "speeds.train_token_s=1e-2"
    ]
    assert main(["plan", *slow_trainer, "--schedule", "sync,bounded-async", "max_staleness=8"]) == 0
    recommended = capsys.readouterr().out.strip().splitlines()[-1]
    assert re.search(
        r"At that age expect 0\.\d times the learning rate and \d\.\d times the steps of fresh data", recommended
    )


def test_json_and_chosen_schedules(capsys):
    assert main(["plan", *SMALL, "--schedule", "sync,partial-rollout", "--json", "max_staleness=2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [f["schedule"] for f in document["forecasts"]] == ["sync", "partial-rollout"]
    sync, partial = document["forecasts"]
    assert sync["ages"] == {"0": 1.0} and max(map(int, partial["ages"])) <= 2
    assert partial["rollouts_per_s"] > sync["rollouts_per_s"]
    assert document["plan"]["speeds"]["step_s"] == 0.02


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "the speeds are unknown"),
        ([*SMALL, "--schedule", "partial"], "did you mean partial-rollout"),
        ([*SMALL, "sloots=3"], "slots"),
        ([*SMALL, "kept=0"], "kept is 0"),
        ([*SMALL, "trainers=0"], "only serial"),
        (["--from", "nowhere"], "there is no run nowhere"),
        (["demo"], "give runs with --from"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(words, said, capsys):
    assert main(["plan", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_every_key_is_on_the_help_page(capsys):
    assert main(["plan", "--help"]) == 0
    out = capsys.readouterr().out
    for key in ("samplers=1", "speeds.context_s=0.0", "lengths.task_share=0.5", "oversampling=1.0"):
        assert key in out


@pytest.mark.slow
def test_a_thousand_devices_take_seconds():
    words = ["samplers=768", "trainers=256", "slots=64", "prompts_per_step=512", "num_generations=16"]
    words += ["lengths=LogNormal(mean=4000.0, cv=1.0)", "warmup=1", "steps=2"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    command = [sys.executable, "-m", "gimbal", "plan", *SPEEDS, *words, "--schedule", "sync", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 15
    (forecast,) = json.loads(done.stdout)["forecasts"]
    assert forecast["trained"]["rollouts"] == 2 * 512 * 16


def test_schedules_that_come_out_alike_share_a_row():
    from gimbal.cli.plan import rows
    from gimbal.runtime.simulate.simulator import Setup, simulate

    one = simulate(Setup(steps=2, warmup=1), "one-step-off")
    table = rows([one, replace(one, schedule="bounded-async"), replace(one, schedule="sync", rollouts_per_s=1e9)])
    assert [line.split("  ")[1] for line in table.splitlines()[1:]] == ["one-step-off, bounded-async", "sync"]
