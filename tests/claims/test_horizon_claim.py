"""The tasks of the claim need their turns, its arms differ in their limit alone, and the limit acts in what is recorded."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import horizon


def played(task, programs, answer):
    """(What the programs and the answer earn, how many programs failed)."""
    live = horizon.Arriving().open()
    try:
        live.reset(task, 0)
        failed = sum(live.step(f"${program}").errors for program in programs)
        return live.step(f"<answer>{answer}</answer>").reward, failed
    finally:
        live.close()


@pytest.mark.parametrize("index", range(9))
def test_a_solution_takes_a_program_for_each_file(index):
    task = horizon.Hops(seed=3, size=9)[index]
    programs = task.columns["programs"]
    assert len(programs) == index % 3 + 1 == len(task.columns["later"]) + 1
    assert played(task, programs, task.answer) == (1.0, 0)
    assert played(task, programs, "?")[0] == 0.0
    if len(programs) > 1:  # the last file is not there before its turn, whatever one program does
        assert played(task, programs[1:], task.answer)[1] > 0
        assert played(task, ["\n".join(programs)], task.answer)[1] == 1


def asked(task):
    return str([task.columns[name] for name in ("messages", "files", "later")])


def test_what_is_held_out_is_not_trained_on():
    trained = {asked(task) for task in horizon.Hops(seed=0, size=600)}
    held_out = [asked(task) for n in horizon.FILES for task in horizon.Hops(seed=n, size=horizon.EACH, files=(n,))]
    assert len(set(held_out)) == 72 and not trained & set(held_out)


def test_arms_differ_in_their_limit_alone():
    of = {arm: horizon.run_of(arm, 1e-4, 3) for arm in horizon.STAGES}
    assert {run.workflow.answers for run in of.values()} == {5}
    assert [run.curriculum.turns for run in of.values()] == [(2,), (6,), (2, 4, 6)]
    assert len({str(run.optimization) + str(run.tasks) + str(run.sampling) for run in of.values()}) == 1


def test_limits_act_in_what_is_recorded():
    runs = campaign.load(horizon.RECORD)
    for run in runs:
        assert run["tokens"] >= horizon.TOKENS and set(run["limit"]) <= set(horizon.STAGES[run["arm"]])
        assert run["arm"] != "short" or run["cut"] > 0
