"""The claims on flow maps and on scores by group: arms differ in one thing, and verdicts follow from the record."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import flow_maps as claim
import flow_maps_page as page
import group_matching

pytest.importorskip("diffusers")


def runs_of(own, taught):
    """Energies in 1, 2, 4 and 8 steps of each arm; the base's are 2, 0.4, 0.1 and 0.03."""
    rows = [(claim.BASE, 0.0, (2.0, 0.4, 0.1, 0.03)), (claim.OWN, 1e-3, own), (claim.TAUGHT, 1e-3, taught)]
    found = []
    for arm, rate, energies in rows:
        for seed in (100, *claim.TUNED.seeds):
            figures = {f"energy in {n}": x * (1 + 0.001 * seed) for n, x in zip(claim.COUNTS, energies, strict=True)}
            figures |= {f"coverage in {n}": 0.3 for n in claim.COUNTS}
            rates = claim.TUNED.rates if seed == 100 and arm != claim.BASE else (rate,)
            found += [{"arm": arm, "rate": r, "seed": seed, "mean": r, "cpu": 1.0} | figures for r in rates]
    return [run for run in found if (run["arm"], run["seed"]) != (claim.BASE, 100)]


def test_verdicts_follow_the_rule():
    runs = runs_of((0.1, 0.05, 0.02, 0.01), (0.2, 0.05, 0.01, 0.01))
    assert claim.falls(runs) == 5
    said = [page.nearer(claim.apart(runs, n, claim.BASE, n)) for n in claim.COUNTS]
    assert said == ["**yes**"] * 4
    own = [page.nearer(claim.apart(runs, n, claim.TAUGHT, n)) for n in claim.COUNTS]
    assert own == ["**yes**", "not decided", "**refuted**", "not decided"]
    assert claim.falls(runs_of((0.1, 0.2, 0.02, 0.01), (1, 1, 1, 1))) == 0
    assert "5 of 5" in page.section(runs) and claim.apart(runs[:-1], 1, claim.TAUGHT, 1) is None


def test_arms_differ_in_one_thing():
    own, taught = (claim.run_of(arm, 1e-3, 3) for arm in (claim.OWN, claim.TAUGHT))
    assert own.update.walker == "policy" and taught == replace(own, update=replace(own.update, walker="teacher"))
    one, group = (group_matching.run_of(arm, 1e-4, 3) for arm in (group_matching.SAMPLE, group_matching.GROUP))
    assert group.update.by_group and one == replace(group, update=replace(group.update, by_group=False))
    assert sum(map(len, claim.left([]))) == 16  # five of the base, the tuning runs, and those that were added
