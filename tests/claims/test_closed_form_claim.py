"""The verdict on the closed form follows from the record, and its three estimates are of one gradient."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import closed_form as claim

pytest.importorskip("diffusers")


def runs_of(ratio, along=1.0):
    return [
        {"seed": seed, "guidance": guidance, "baseline / closed": ratio(seed, guidance), "along": along, "error": 0.1}
        for seed in claim.SEEDS
        for guidance in claim.GUIDANCES
    ]


def test_the_verdict_follows_the_rule():
    assert claim.verdict(runs_of(lambda seed, guidance: 2.0)) == "**supported**"
    assert claim.verdict(runs_of(lambda seed, guidance: 0.5 if guidance == 3 else 2.0)) == "**refuted**"
    assert claim.verdict(runs_of(lambda seed, guidance: 0.5 if seed == 0 else 2.0)) == "not decided"
    assert claim.verdict(runs_of(lambda seed, guidance: 2.0, along=1.5)).startswith("none")
    assert claim.verdict(runs_of(lambda seed, guidance: 2.0)[1:]).startswith("open")


def test_each_recorded_run_estimates_one_thing():
    for run in campaign.load(claim.RECORD):
        assert abs(run["along"] - 1) <= claim.ERRORS * run["error"], run
