"""Edits of a harness that are held to their forecasts, and taken back."""

from dataclasses import replace

import pytest

import gimbal
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.runtime.harness import HarnessEdit, HarnessLoop
from gimbal.runtime.run import HeldOut

BEFORE = {"a": 0.0, "b": 0.5, "c": 1.0, "d": 0.5}


def edit(name="e", fixes="a", risks="", changes=None):
    return HarnessEdit(name=name, changes=changes, fixes=frozenset(fixes), risks=frozenset(risks))


@pytest.mark.parametrize(
    ("after", "fixes", "kept"),
    [
        ({"a": 1.0, "b": 0.5, "c": 1.0, "d": 0.5}, "a", True),
        ({"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.5}, "a", True),  # at a price, and worth it
        ({"a": 1.0, "b": 0.0, "c": 0.5, "d": 0.5}, "a", False),  # not worth it
        ({"a": 0.0, "b": 1.0, "c": 1.0, "d": 1.0}, "a", False),  # it rose, but not where it said
        ({"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.5}, "ab", True),  # half of the forecast came true
        ({"a": 0.0, "b": 1.0, "c": 1.0, "d": 0.5}, "abd", False),  # a third of it
        (BEFORE, "a", False),
    ],
)
def test_an_edit_is_kept_for_what_it_said(after, fixes, kept):
    assert HarnessLoop().judge(edit(fixes=fixes), BEFORE, after).kept == kept


def test_figures_by_hand():
    found = HarnessLoop().judge(edit(fixes="ab", risks="c"), BEFORE, {"a": 1.0, "b": 0.5, "c": 0.5, "d": 0.0})
    assert (found.precision, found.fixed, found.gain, found.kept) == (0.5, 0.5, 0.0, False)
    assert (found.regressed, found.unforeseen) == ({"c", "d"}, {"d"})


def test_without_precision_and_naming_all_it_is_hill_climbing():
    climbing = HarnessLoop(precision=0.0)
    for value in (0.0, 0.25, 0.75, 1.0):
        after = {**BEFORE, "d": value}
        assert climbing.judge(edit(fixes="abcd"), BEFORE, after).kept == (sum(after.values()) > sum(BEFORE.values()))


def test_what_is_taken_back_is_gone_and_what_is_kept_is_compared_with():
    worth = {"good": {"a": 1.0}, "harmful": {"a": 0.0, "c": 0.0}, "again": {"a": 1.0}}

    def measure(harness, number):
        seen.append((harness, number))
        return BEFORE | {task: value for name in harness for task, value in worth[name].items()}

    def propose(harness, passes, decisions):
        told.append((passes["a"], [decision.kept for decision in decisions]))
        return edit(names[len(decisions)], changes=(names[len(decisions)],)) if len(decisions) < len(names) else None

    names, seen, told = ["harmful", "good", "again"], [], []
    harness, decisions = HarnessLoop()((), propose, measure, lambda harness, changes: harness + changes)
    assert harness == ("good",) and [decision.kept for decision in decisions] == [False, True, False]
    assert seen == [((), 0), (("harmful",), 1), (("good",), 2), (("good", "again"), 3)]
    assert told == [(0.0, []), (0.0, [False]), (1.0, [False, True]), (1.0, [False, True, False])]
    assert len(HarnessLoop(rounds=2)((), propose, measure, lambda harness, changes: harness + changes)[1]) == 2


def test_a_run_is_a_harness_and_its_overrides_are_edits():
    run = grpo()
    rows = Rows(rows=[{"prompt": f"{n} + 1 =\n", "answer": str(n + 1)} for n in range(4)])
    held_out = HeldOut(tasks=rows, samples=2, rewards=(Pattern(pattern=r"<\w+>"),))
    run = replace(run, held_out=held_out, engine=Native(slots=8), threads=1)
    ids = frozenset(rows[n].id for n in range(4))
    edits = [HarnessEdit(name="short", changes={"sampling.max_length": "1"}, fixes=ids)]
    found, decisions = HarnessLoop()(
        run,
        lambda harness, passes, done: edits[len(done)] if len(done) < len(edits) else None,
        lambda harness, number: gimbal.evaluate(replace(harness, seed=number)).by_task,
    )
    assert decisions[0].kept and found.sampling.max_length == 1
    assert replace(found, sampling=run.sampling) == run


def test_forecasts_about_nothing_are_refused():
    with pytest.raises(ValueError, match=r"the edit 'e' says it will fix \['z'\], which were not evaluated"):
        HarnessLoop().judge(edit(fixes="az"), BEFORE, BEFORE)
    with pytest.raises(ValueError, match=r"the edit 'e' says it will fix no task"):
        HarnessLoop().judge(edit(fixes=""), BEFORE, BEFORE)
    with pytest.raises(ValueError, match=r"rounds=0 \(1 or more\) and precision=0\.5"):
        HarnessLoop(rounds=0)
    with pytest.raises(ValueError, match=r"precision=1\.5"):
        HarnessLoop(precision=1.5)


def test_an_edit_that_breaks_tasks_does_not_gain_by_it():
    after = {"a": 1.0, "d": 0.5}  # of b and c no attempt could be scored
    found = HarnessLoop().judge(edit(fixes="a"), BEFORE, after)
    assert (found.kept, found.gain, found.regressed) == (False, -0.125, {"b", "c"})


def test_what_cannot_be_tried_is_a_decision_and_loses_nothing():
    edits = [
        edit("good", fixes="a", changes=0.5),
        edit("strange", fixes="z"),
        edit("none", fixes=""),
        edit("no key", changes=None),
    ]

    def apply(harness, changes):
        if changes is None:
            raise ValueError("there is no such key")
        return harness + changes

    measured = []

    def measure(harness, number):
        measured.append(number)
        return BEFORE | {"a": harness}

    loop = HarnessLoop(rounds=4)
    harness, decisions = loop(0.0, lambda h, passes, done: edits[len(done)], measure, apply)
    assert harness == 0.5 and measured == [0, 1], "only what can be tried is evaluated"
    assert [decision.kept for decision in decisions] == [True, False, False, False]
    said = [decision.refused for decision in decisions]
    assert said[0] == "" and said[3] == "there is no such key"
    assert said[1] == (
        "the edit 'strange' says it will fix ['z'], which were not evaluated; name tasks of the evaluation by their ids, as "
        "['a', 'b', 'c']"
    )
