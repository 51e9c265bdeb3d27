"""The arms of the claims on memory differ in what they say, rows are rebuilt as they say, and verdicts follow the record."""

import statistics
import sys
from dataclasses import replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "claims"), str(Path(__file__).parents[1] / "workflows")]

import campaign
import cases
import cases_page
import memory
import tuned_page
from dice import POLICY
from test_edited_context import STREAM, counted, episode, keeps_all, whole

from gimbal.dataflow.packing import pack
from gimbal.records import Group, Part
from gimbal.runtime.compose import check
from gimbal.workflows.retrieval import Case
from gimbal.workflows.single import SingleTurn


def test_arms_differ_in_the_workflow_or_in_how_streams_are_asked():
    edits, window, full, rebuilt = (memory.run_of(arm, 1e-3, 3) for arm in memory.TUNED.arms)
    held_out = replace(edits.held_out, workflow=edits.workflow)
    assert rebuilt == replace(edits, workflow=memory.Rebuilt(inside=edits.workflow), held_out=held_out)
    assert window == replace(full, tasks=window.tasks, held_out=window.held_out) and window.workflow == SingleTurn()
    assert [window.tasks[5].answer, window.held_out.tasks[5].answer] == [
        edits.tasks[5].answer,
        edits.held_out.tasks[5].answer,
    ]
    lines = [len(line) for line in edits.tasks[5].columns["lines"]]
    assert 4 + sum(lines[2:]) + 1 + edits.workflow.turn == edits.workflow.window, "two lines are what the window holds"
    for run in (edits, window, full, rebuilt):
        check(run)


def test_a_rebuilt_episode_is_one_row_of_everything():
    cut = episode(keeps_all)
    joined = memory.rebuilt(cut)
    (row,) = joined.rows
    row.validate()
    assert whole(row) == "ae?\na1b2\n-a1<eos>c3d4\n-a1<eos>e5f6\n-a1e5<eos>=15<eos>"
    assert counted(row) == "".join(map(counted, cut.rows)) and joined.earned == cut.earned == 1
    assert row.behavior_S[row.mask_S].tolist() == [x for one in cut.rows for x in one.behavior_S[one.mask_S].tolist()]
    assert ((row.part_S == Part.OBSERVATION) == ~row.mask_S).all() and row.turn_S.max() == 3
    assert pack([Group(index=0, task=STREAM, episodes=(joined,))]).return_N.tolist() == [1]
    slid = episode(lambda context: "0" if context.endswith("=") else "-", window=26, edit="(never)")
    (row,) = memory.rebuilt(slid).rows
    assert whole(row) == "ae?\na1b2\n-<eos>c3d4\n-<eos>e5f6\n-<eos>=0<eos>"
    assert POLICY.end_ids == (1,)


def test_verdicts_on_edits_follow_the_rule():
    def runs(**ends):
        rows = [(arm, rate, 100, -rate) for arm in memory.TUNED.arms for rate in memory.TUNED.rates]
        rows += [(arm, 3e-4, seed, ends.get(arm, 0.5) + 0.01 * seed) for arm in memory.TUNED.arms for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "success"), row, strict=True)) for row in rows]

    assert tuned_page.rule(memory, runs(edits=0.9)).count("| yes |") == 2
    assert tuned_page.rule(memory, runs(whole=0.9)).count("| yes |") == 1
    assert tuned_page.rule(memory, runs()[:-1]).count("seeds are missing") == 1


def test_each_recorded_run_had_the_mechanism():
    runs = campaign.load(memory.RECORD)
    gaps = {arm: [run["gap"] for run in memory.TUNED.fresh(runs, arm)] for arm in ("edits", "rebuilt")}
    for run in runs:
        assert len(run["curve"]) == memory.STEPS
        assert (run["broken"] > 0.5) == (run["arm"] == "edits"), run
    assert min(gaps["rebuilt"]) > max(gaps["edits"])
    apart = statistics.median(gaps["rebuilt"]) / statistics.median(gaps["edits"])
    assert round(apart) == 5 and "is five times that of *edits*" in memory.__doc__, (
        "less than the ten of its rule, as it says"
    )


def test_arms_on_cases_differ_in_retrieval_alone():
    learned, cosine, successes, none = (cases.workflow_of(arm, 0.1) for arm in (*cases.TUNED.arms, *cases.OTHERS))
    assert learned.retrieval.rate == 0.1 and learned == replace(cosine, retrieval=learned.retrieval)
    assert successes == replace(cosine, retrieval=successes.retrieval) and none == replace(cosine, read=0)
    right, wrong = Case("a", "zz", "1", 1.0), Case("b", "abc", "2", 0.0)
    values = successes.retrieval.values((), "abc", [right, wrong, right._replace(asked="abc")])
    assert values[2] > values[0] >= 1 >= values[1]


def test_verdicts_on_cases_follow_the_rule():
    def runs(**ends):
        rows = [("learned", rate, 100, -rate) for rate in cases.TUNED.rates]
        rows += [("learned", cases.TUNED.rates[0], seed, ends.get("learned", 0.5) + 0.01 * seed) for seed in range(5)]
        rows += [(arm, 0.0, seed, ends.get(arm, 0.5) + 0.01 * seed) for arm in cases.OTHERS for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "right"), row, strict=True)) for row in rows]

    assert cases_page.rule(runs(learned=0.9, none=0.1)).count("| yes |") == 3
    assert cases_page.rule(runs()).count("| undecided |") == 3
    assert cases_page.rule(runs()[:-1]).count("seeds are missing") == 1
    assert [len(part) for part in cases.left([])] == [3, 0, 15]
    assert [len(part) for part in cases.left(runs()[:3])] == [0, 5, 15]
