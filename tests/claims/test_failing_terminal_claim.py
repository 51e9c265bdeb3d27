"""What the claim about a failing terminal counts as lost, how it fails an episode, and what it says by its rule."""

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "claims"))

import failing_terminal as claim

from gimbal.environments.base import Failure
from gimbal.environments.terminal import Terminal
from gimbal.records import Task

NOTED = {"sandbox_error": 4, "tool_error": 8, "tool_timeout": 8}


def run(seed: int, after: float, **fields) -> dict:
    usual = {"dispatched": 100, "drawn": 80, "counted": NOTED, "noted": NOTED}
    return {"arm": "failing", "seed": seed, "after": after, **usual, **fields}


AGAIN = {"arm": "clean", "seed": 0, "pass_rate": claim.recorded("pass_rate")[0][: claim.FIRST]}
CLEAN = claim.recorded("after")


def test_an_episode_that_nobody_counts_or_by_another_name_is_lost():
    assert claim.whole(run(1, 0.9))
    assert not claim.whole(run(1, 0.9, drawn=79))
    other = {"sandbox_error": 4, "tool_error": 16}
    assert not claim.whole(run(1, 0.9, counted=other))
    assert not claim.whole(run(1, 0.9, counted=NOTED | {"stuck": 1}, dispatched=101))


def test_the_verdict_follows_the_rule():
    def said(shift: float, again=AGAIN) -> str:
        return claim.section([again, *(run(seed, CLEAN[seed] + shift) for seed in claim.SEEDS)])

    assert "nothing is decided" in claim.section([run(0, 0.9)])
    assert "nothing is lost, and each failure has its name" in said(0.0)
    for shift, word in ((0.01, "yes"), (-0.1, "refuted"), (-0.04, "refuted"), (-0.02, "yes")):
        assert f"ends as well: **{word}**, {shift:+.3f}" in said(shift), (shift, said(shift)[-400:])
    assert "Nothing is compared" in said(0.0, AGAIN | {"pass_rate": [0.5] * claim.FIRST})
    assert "runs [1] do not account" in claim.section([AGAIN, *(run(s, 0.9, drawn=80 - (s == 1)) for s in claim.SEEDS)])


def test_a_fifth_of_the_episodes_fail_each_kind_as_often_at_each_turn():
    fates = [claim.fate(0, f"t{task}", number) for task in range(500) for number in range(20)]
    kinds, turns = (Counter(fate[place] for fate in fates if fate[0]) for place in (0, 1))
    assert set(kinds) == set(claim.KINDS) and abs(sum(kinds.values()) / len(fates) - 0.2) < 0.012
    assert all(abs(count / len(fates) - claim.SHARE) < 0.006 for count in kinds.values())
    assert set(turns) == {1, 2, 3} and all(abs(count / sum(turns.values()) - 1 / 3) < 0.04 for count in turns.values())


@pytest.mark.parametrize("kind", [kind for kind in claim.KINDS if kind != "environment_timeout"])
def test_each_kind_is_told_by_its_own_fault(kind):
    session = Terminal().open()
    session.reset(Task(id="t", answer="1"), 0)
    with pytest.raises(OSError if kind == "environment_error" else Failure) as raised:
        claim.failed(kind, session)
    if kind != "environment_error":
        late = "timeout" if raised.value.late else "error"
        assert f"{raised.value.fault}_{late}" == kind


def test_arms_differ_in_who_answers_alone():
    clean, other = (claim.run_of(arm, 1) for arm in ("clean", "failing"))
    assert other.workflow.tool.terminal == clean.workflow.tool and other.held_out.workflow == clean.workflow
    assert (other.optimization, other.tasks, other.sampling) == (clean.optimization, clean.tasks, clean.sampling)
    assert round(claim.SHARE * len(claim.KINDS), 9) == 0.2
