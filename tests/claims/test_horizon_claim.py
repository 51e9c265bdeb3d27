"""The tasks of the claim need their turns, and its verdict follows from the record."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import horizon
import horizon_page


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


def runs(short, long, staged):
    found = [
        {"arm": arm, "rate": rate, "seed": horizon.TUNING, "after": 0.5 - abs(rate - 1e-4)}
        for arm in horizon.STAGES
        for rate in horizon.RATES
    ]
    for arm, after in {"short": short, "long": long, "staged": staged}.items():
        found += [{"arm": arm, "rate": 1e-4, "seed": seed, "after": value} for seed, value in enumerate(after)]
    return found


def test_the_interval_of_the_paired_difference_decides():
    high, low, noise = [0.50, 0.52, 0.48, 0.51, 0.49], [0.30, 0.33, 0.28, 0.30, 0.29], [0.7, 0.3, 0.5, 0.4, 0.6]
    assert "**better**" in horizon_page.compared(runs(low, low, high), "short")
    assert "**worse**" in horizon_page.compared(runs(low, high, low), "long")
    assert "**not decided**" in horizon_page.compared(runs(noise, low, high), "short")


def test_until_all_is_there_nothing_is_decided():
    whole = runs([0.3] * 5, [0.3] * 5, [0.5] * 5)
    assert "4 of 5 pairs" in horizon_page.compared(whole[:-1], "long")
    assert "0 of 5 pairs" in horizon_page.compared(whole[1:], "short")  # a rate was not tried: none is chosen
    assert [job for part in horizon.left(whole[:-1]) for job in part] == [("staged", 1e-4, 4)]


def test_arms_differ_in_their_limit_alone():
    of = {arm: horizon.run_of(arm, 1e-4, 3) for arm in horizon.STAGES}
    assert {run.workflow.answers for run in of.values()} == {5}
    assert [run.curriculum.turns for run in of.values()] == [(2,), (6,), (2, 4, 6)]
    assert len({str(run.optimization) + str(run.tasks) + str(run.sampling) for run in of.values()}) == 1


def test_a_collapse_is_a_fall_to_less_than_half():
    assert horizon.collapsed([0.4, 0.4, 0.4, 0.1, 0.1, 0.1])
    assert not horizon.collapsed([0.4, 0.4, 0.4, 0.3, 0.2, 0.2])


def test_limits_act_in_what_is_recorded():
    for run in campaign.load(horizon.RECORD):
        assert run["tokens"] >= horizon.TOKENS and set(run["limit"]) <= set(horizon.STAGES[run["arm"]])
        assert run["arm"] != "short" or sum(run["truncated"]) > 0
