"""The arms of the claim on agents that part are what they are named after, and its verdicts follow from the record."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import together
import tuned_page

from gimbal.runtime.compose import check

pytest.importorskip("gymnasium")

TRAININGS = sorted({made[:2] for made in together.ARMS.values()})


def runs(**ends):
    """Every arm at the smallest rate."""
    found = []
    for training in TRAININGS:
        for rate in together.TUNED.rates:
            for seed in (100, 0, 1, 2, 3, 4):
                arms = {
                    arm: {"success": ends.get(arm.replace(" ", "_"), 0.2) + 0.01 * (seed % 5) - rate}
                    for arm, made in together.ARMS.items()
                    if made[:2] == training
                }
                shared = {"rate": rate, "seed": seed, "gate": 0.1, "few": 0.1, "cpu": 1.0}
                found.append({"coupled": training[0], "averaged": training[1], "arms": arms, **shared})
    return found


def verdicts(**ends):
    return tuned_page.rule(together, together.by_arm(runs(**ends)))


def test_verdicts_on_agents_that_part_follow_the_rule():
    assert verdicts().count("| undecided |") == 6
    assert verdicts(coflow=0.7).count("| yes |") == 3 and verdicts(coflow=0.7, joint_10=0.9).count("| yes |") == 5


def test_each_training_is_done_once_at_a_rate():
    first, second = together.left([])
    assert len(first) == 4 * 3 and not second
    assert not any(jobs for jobs in together.left(runs()))


def test_arms_differ_in_what_they_are_named_after():
    base = together.run_of(True, True, 3e-3, 4)
    for coupled, averaged in TRAININGS:
        run = together.run_of(coupled, averaged, 3e-3, 4)
        check(run)
        assert (run.policy.coupled, run.policy.averaged) == (coupled, averaged)
        assert (run.update, run.tasks, run.store) == (base.update, base.tasks, base.store)


def test_success_is_that_of_the_environment():
    policy = together.run_of(True, True, 3e-3, 4).policy.load(0)
    policy.draw = lambda seen, noise, warm: (seen + torch.tensor([0.6, -0.6, 0.0]), None)
    assert together.success(policy, 1, False, 0) == 1.0
    policy.draw = lambda seen, noise, warm: (seen + torch.tensor([0.6, 0.6, 0.0]), None)
    assert together.success(policy, 1, False, 0) == 0.0
