"""A run is told in the units of its policy's family, and no figure is written that means nothing for it."""

import json
from dataclasses import replace

import pytest

from gimbal.controllers.lagrangian import Lagrangian
from gimbal.policies.paths import PATHS
from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.recipes.papers.control.pendulum import pendulum
from gimbal.report.console import Console
from gimbal.report.doctor import diagnosis_of
from gimbal.report.files import METRICS, drawn
from gimbal.report.record import Record
from gimbal.runtime import compose
from gimbal.runtime.local import run_local

MEANINGLESS = ("pass_rate", "length/correct", "length/truncated_frac", "success", "difficulty", "tokens")


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [cartpole, pendulum])
def test_a_control_run_has_returns_and_steps(recipe, tmp_path, capsys, single_thread):
    run = replace(recipe(), steps=2, prompts_per_step=2, held_out=None, threads=1, record_every=0)
    run_local(run, tmp_path / "run")
    rows = [json.loads(line) for line in (tmp_path / "run" / METRICS).read_text().splitlines()]
    assert len(rows) == 2 and drawn(rows[-1]) == rows[-1]["env_steps"] > 0 and rows[0]["perf/env_steps_per_s"] > 0
    keys = {key for row in rows for key in row}
    assert not [key for key in keys if any(part in key for part in MEANINGLESS)]
    assert ("mismatch/prob_diff" in keys) == (recipe is cartpole), "densities have no |p - p'|"
    assert {"reward/mean", "length/mean", "mismatch/k3", "selection/sampled/length"} <= keys
    said = capsys.readouterr().out
    assert "return " in said and "env steps/s " in said
    assert "tok/s" not in said and "pass" not in said and "reward " not in said
    assert ("mismatch " in said) == ("of sampler and trainer" in said) == (recipe is cartpole)
    assert not [sign.name for sign in diagnosis_of(Record(tmp_path / "run")).signs]


def test_what_a_density_cannot_be_steered_by_is_refused():
    run = pendulum()
    wrong = replace(run, controllers={"optimization.learning_rate": Lagrangian()})
    with pytest.raises(ValueError, match=r"Gaussian has densities.*signal=mismatch/k3"):
        compose.check(wrong)


def test_texts_are_told_as_they_were(capsys):
    Console(10, "demo").step({"step": 1.0, "reward/mean": 0.5, "pass_rate": 0.25, "perf/tokens_per_s": 20.0})
    said = capsys.readouterr().out
    assert "reward 0.500" in said and "pass rate 0.250" in said and "tok/s 20" in said


def test_images_have_scores(capsys):
    Console(10, "flow", PATHS).step({"step": 1.0, "reward/mean": -6.0})
    assert "score -6.000" in capsys.readouterr().out


def test_a_run_that_only_a_teacher_grades_shows_how_far_it_is(capsys):
    figures = {"step": 1.0, "reward/mean": 0.0, "pass_rate": 0.0, "distillation/kl": 0.5}
    Console(10, "opd").step(figures)
    Console(10, "opd").step({**figures, "reward/error/mean": 0.0})
    alone, scored = capsys.readouterr().out.splitlines()
    assert "KL to the teacher 0.500" in alone and "reward" not in alone and "pass rate" not in alone
    assert "KL to the teacher 0.500" in scored and "reward 0.000" in scored
