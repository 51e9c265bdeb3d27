"""The verdicts on samplers of few steps follow from the record, and its distance is one between distributions."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import few_steps as claim

pytest.importorskip("diffusers")


def runs_of(student, coverage=0.3):
    base = {1: 2.0, 2: 0.4, 4: 0.1, 10: 0.03}
    rows = [("base", steps, seed, base[steps] + 0.001 * seed, 0.3) for steps in base for seed in claim.SEEDS]
    rows += [("student", steps, seed, student + 0.001 * seed, coverage) for steps in claim.FEW for seed in claim.SEEDS]
    return [dict(zip(("arm", "steps", "seed", "energy", "coverage"), row, strict=True)) for row in rows]


def test_verdicts_follow_the_rule():
    assert claim.verdicts(runs_of(0.2), 2) == ("**yes**", "yes", "no")
    assert claim.verdicts(runs_of(0.2), 4) == ("**refuted**", "yes", "no")
    assert claim.verdicts(runs_of(0.02, coverage=0.1), 4) == ("**yes**", "no", "yes")
    assert claim.verdicts(runs_of(0.1), 4)[0] == "not decided"
    assert claim.verdicts(runs_of(0.1)[:-1], 4) == ("seeds are missing",) * 3


def test_the_energy_distance_by_hand_and_of_one_distribution():
    x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[3.0], [5.0]])
    assert claim.energy(x, y) == pytest.approx(2 * (3 + 5 + 2 + 4) / 4 - 1 - 2)
    g = torch.Generator().manual_seed(0)
    one, same, other = (torch.randn(2000, 3, generator=g) for _ in range(3))
    assert abs(claim.energy(one, same)) < 0.01 < claim.energy(one, other + 0.5)


def test_students_differ_in_their_steps_alone_and_start_as_the_base():
    one, two, four = (claim.run_of(steps, 3) for steps in claim.FEW)
    assert two == replace(four, sampling=two.sampling) and one == replace(two, sampling=one.sampling)
    assert {run.update.optimization.learning_rate for run in (one, two, four)} == {claim.RATE}
    assert two.update.fake_updates == 5 and two.update.teacher is None
    assert claim.sampling_of("base", 2).spacing == claim.sampling_of("student", 2).spacing == "trailing"
    assert sum(map(len, claim.left([]))) == 35


def test_in_each_recorded_run_fake_and_teacher_differ():
    for run in campaign.load(claim.RECORD):
        assert run["arm"] == claim.BASE or run["apart"] > 0.01, run
