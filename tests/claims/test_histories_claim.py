"""claims/histories.py: its arms differ in what its rule says, and in nothing else."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import histories

from gimbal.policies.encoded import Encoded
from gimbal.policies.gaussian import Gaussian

pytest.importorskip("gymnasium")
pytest.importorskip("h5py")


def test_arms_differ_in_frames_the_code_and_the_weight_of_distances(tmp_path):
    found = {arm: histories.run_of(arm, 3e-3, 4, tmp_path / arm) for arm in histories.ARMS}
    sizes = {arm: run.policy.observations for arm, run in found.items()}
    assert sizes["2 frames"] < sizes["16 frames"] == sizes["code"] == sizes["bisimulation"]
    assert {type(run.policy) for run in found.values()} == {Gaussian, Encoded}
    code, whole = found["code"], found["bisimulation"]
    assert code.update.weight == 0 < whole.update.weight
    same = {"update": whole.update, "tasks": whole.tasks}  # the data are written in a place for each arm
    assert replace(code, **same) == whole and replace(code.update, weight=whole.update.weight) == whole.update
    assert found["16 frames"].update == whole.update.inside
