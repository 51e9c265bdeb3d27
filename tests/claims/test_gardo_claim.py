"""The verdicts on a reward that can be hacked follow from the record, and none is passed on a part of it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import gardo


def run(arm, seed, coef=0.0, true=0.5, coverage=0.5, curve=(0.1,) * 24):
    ends = {"true_after": true, "coverage_after": coverage, "proxy_before": 0.0, "proxy_after": 1.0}
    return {"arm": arm, "seed": seed, "coef": coef, **ends, "curve": {"true": list(curve)}}


FALLING = (*([0.1] * 8), *([0.8] * 8), *([0.2] * 8))
TUNED = [run(arm, gardo.TUNING, coef, true=coef / 2) for arm in ("kl", "gardo") for coef in gardo.COEFS]
FREE = [run("free", seed, true=0.2, curve=FALLING) for seed in gardo.SEEDS]
KL = [run("kl", seed, 1.0, true=0.5, coverage=0.3) for seed in gardo.SEEDS]
OURS = [run("gardo", seed, 1.0, true=0.6) for seed in gardo.SEEDS]
EVERY = [*TUNED, *FREE, *KL, *OURS]


def test_verdicts_by_the_rule():
    assert gardo.best(EVERY, "kl") == 1.0 and gardo.best(FREE, "kl") is None
    assert gardo.hacked(EVERY) and gardo.keeps(EVERY) and gardo.better(EVERY)
    assert gardo.hacked([run("free", seed) for seed in gardo.SEEDS]) is False, "nothing fell"
    worse = [*TUNED, *FREE, *KL, *OURS[1:], run("gardo", 0, 1.0, true=0.5)]
    assert gardo.keeps(worse) and gardo.better(worse) is False, "one tie is enough"
    low = [*TUNED, *KL, *OURS[1:], run("gardo", 0, 1.0, true=0.6, coverage=0.2)]
    assert gardo.better(low) is False and gardo.keeps(low) is None


def test_a_missing_run_is_no_verdict_and_is_left_to_do():
    assert gardo.better([*TUNED, *KL[1:], *OURS]) is None and gardo.hacked(FREE[1:]) is None
    first, *_ = gardo.left([])
    assert len(first) == 6 and {seed for _, seed, _ in first} == {gardo.TUNING}
    assert [len(jobs) for jobs in gardo.left(EVERY)] == [0, 0, 6, 10]


def test_arms_differ_in_what_holds_them():
    free, kl, ours, gate, renewed = (gardo.arm_of(name, 0, 0.5) for name in gardo.ARMS)
    assert not free.regularisers and kl.regularisers[0].coef == ours.regularisers[0].coef == 0.5
    assert ours.shaping and ours.renewal and ours.controllers
    assert not gate.shaping and gate.renewal is None and gate.controllers == ours.controllers
    assert renewed.renewal == ours.renewal and not renewed.shaping
    assert {repr(arm.advantage) for arm in (free, kl, ours, gate, renewed)} == {repr(free.advantage)}
