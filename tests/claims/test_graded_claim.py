"""The claim on step filters: what the demonstrator does, what each arm keeps of it, and what its figures are measured on."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import campaign
import graded

STEPS = graded.demonstrated(100, 300)


def test_the_demonstrator_is_as_the_setting_says():
    runs = [graded.demonstrated(seed, 1) for seed in range(400)]
    succeed = [run[-1].succeeded for run in runs]
    assert 0.55 < sum(succeed) / len(succeed) < 0.67 and max(map(len, runs)) == graded.TURNS
    for run in runs:
        assert len({step.succeeded for step in run}) == 1
        assert sum(step.right for step in run) == 3 or not run[-1].succeeded
        for at, step in enumerate(run):  # the chat has the task, and a turn and its answer for each step before
            assert len(step.before) == 1 + 2 * at and [m["content"] for m in step.before[1::2]] == [
                s.said for s in run[:at]
            ]


def test_arms_keep_what_they_are_named_after():
    kept = {arm: graded.kept(arm, STEPS, 100) for arm in graded.ARMS}
    assert kept["steps"] == [step for step in STEPS if step.right]
    assert all(step.succeeded for step in kept["outcome"]) and not all(step.right for step in kept["outcome"])
    assert kept["right of outcome"] == [step for step in kept["outcome"] if step.right]
    verdicts = graded.noisy(STEPS, 0.9, 100)
    assert 0.87 < sum(verdict == step.right for verdict, step in zip(verdicts, STEPS, strict=True)) / len(STEPS) < 0.93
    assert kept["steps .9"] == [step for step, verdict in zip(STEPS, verdicts, strict=True) if verdict]


def test_it_is_deployed_with_the_turns_of_the_demonstrator():
    run = graded.deployed()
    assert run.workflow.answers + 1 == graded.TURNS and len(run.held_out.tasks) == 128 and run.held_out.samples == 2


def test_the_record_is_what_an_arm_keeps():
    for run in campaign.load(graded.RECORD):
        own = graded.kept(run["arm"], graded.demonstrated(run["seed"], graded.RUNS), run["seed"])
        assert (run["steps"], run["right"]) == (len(own), round(sum(step.right for step in own) / len(own), 3))
