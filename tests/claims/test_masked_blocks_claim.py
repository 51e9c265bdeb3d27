"""The claim on blocks of masked text differs from the one on whole grids in blocks alone, and its record is in blocks."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import masked
import masked_blocks as claim


@pytest.mark.parametrize("arm", claim.TUNED.arms)
def test_arms_are_those_on_whole_grids_in_blocks(arm):
    run, whole = claim.run_of(arm, 1e-4, 3), masked.run_of(arm, 1e-4, 3)
    assert run == replace(whole, sampling=replace(whole.sampling, block=claim.BLOCK)) != whole


def test_no_recorded_pass_commits_more_than_a_block():
    for run in campaign.load(claim.RECORD):
        assert max(pace for _, pace in run["points"]) <= claim.BLOCK, run
        assert run["speed"] == masked.speed(run["points"], claim.SHARE)
