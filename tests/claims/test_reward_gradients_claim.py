"""The verdicts on reward gradients follow from the record, and none is passed on a part of it."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import reward_gradients as claim


def run(arm, seed, rate=3e-4, reward=-1.0, true=0.5, coverage=0.3, curve=(0.1, 0.2, 0.3, 0.4, 0.9)):
    cpu = [float(step + 1) * 0.7 for step in range(len(curve))]
    ends = {"reward_after": reward, "true_after": true, "coverage_after": coverage}
    return {"arm": arm, "seed": seed, "rate": rate, **ends, "curve": {"true": list(curve), "cpu": cpu}}


TUNED = [run(arm, claim.TUNING, rate, true=0.6 - abs(rate - 3e-4)) for arm in claim.ARMS for rate in claim.RATES]
BESIDE = [run("flow_grpo", seed) for seed in claim.SEEDS]
OURS = [run("drtune", seed, reward=-0.1, true=0.2) for seed in claim.SEEDS]
EVERY = [*TUNED, *BESIDE, *OURS]


def test_verdicts_by_the_rule():
    assert {claim.best(EVERY, arm) for arm in claim.ARMS} == {3e-4} and claim.best(BESIDE, "draft") is None
    assert [claim.beside(EVERY, "drtune", name) for name in ("reward", "true", "coverage", "early")] == [
        "better",
        "worse",
        "not decided",
        "not decided",
    ]
    assert claim.hacked(EVERY, "drtune")
    tie = [*TUNED, *BESIDE, *OURS[1:], run("drtune", 0, reward=-0.1, true=0.5)]
    assert claim.beside(tie, "drtune", "true") == "not decided" and claim.hacked(tie, "drtune") is False
    assert claim.early(OURS[0]) == pytest.approx((0.2 + 0.3 + 0.4) / 3), "steps 2 to 4 ended before 3 seconds"


def test_a_missing_run_is_no_verdict_and_is_left_to_do():
    assert claim.beside([*TUNED, *BESIDE, *OURS[1:]], "drtune", "true") == "not run"
    assert claim.hacked(EVERY, "refl") is None
    first, *_ = claim.left([])
    assert len(first) == 12 and {seed for _, seed, _ in first} == {claim.TUNING}
    assert [len(jobs) for jobs in claim.left(EVERY)] == [0, 10]


def test_arms_differ_in_how_they_learn():
    grpo, *gradients = (claim.arm_of(name, 0, 3e-4) for name in claim.ARMS)
    for arm in gradients:
        same = ("policy", "engine", "rewards", "prompts_per_step", "num_generations", "max_staleness", "seed")
        assert all(vars(arm)[name] == vars(grpo)[name] for name in same)
        assert arm.sampling.max_length == grpo.sampling.max_length == 6
        assert arm.update.optimization.learning_rate == grpo.optimization.learning_rate == 3e-4
    assert [(arm.update.steps.count, arm.update.steps.late, arm.update.coef) for arm in gradients] == [
        (1, 1, 0.1),
        (1, 4, 10.0),
        (3, 4, 10.0),
    ]
