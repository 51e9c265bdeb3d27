"""The arms of the claims on memory differ in what they say, rows are rebuilt as they say, and verdicts follow the record."""

import statistics
import sys
from dataclasses import replace
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2] / "claims"), str(Path(__file__).parents[1] / "workflows")]

import campaign
import cases
import cases_page
import glance
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


def test_a_question_that_its_rule_takes_back_is_void_and_not_undecided():
    def runs(gap):
        rows = [(arm, rate, 100, -rate) for arm in memory.TUNED.arms for rate in memory.TUNED.rates]
        rows += [(arm, 3e-4, seed, 0.5 + 0.01 * seed) for arm in memory.TUNED.arms for seed in range(5)]
        rows += [(memory.SLOWER, memory.RATE, seed, 0.9 + 0.01 * seed) for seed in range(5)]
        gaps = {"edits": 0.01, "rebuilt": gap, memory.SLOWER: 0.002}
        zero = {"context": 0, "learner": 0, "broken": 0, "cpu": 0}
        told = [dict(zip(("arm", "rate", "seed", "success"), row, strict=True)) for row in rows]
        return [zero | run | {"gap": gaps.get(run["arm"], 0.0)} for run in told]

    assert memory.void(runs(0.11)) == memory.void(runs(0.05)[:-8]) == frozenset()
    assert memory.void(runs(0.05)) == {memory.CUT} and memory.void(runs(0.05), memory.SLOWER) == frozenset()
    rule = tuned_page.rule(memory, runs(0.05), memory.void(runs(0.05)))
    assert rule.splitlines()[-1].endswith("| void |") and rule.count("| undecided |") == 2
    beside = memory.beside(runs(0.05))
    assert beside.count("| yes |") == 2 and beside.count("| no: below |") == 1 and "void" not in beside
    assert memory.beside(runs(0.01)).count("| void |") == 1
    assert memory.beside(runs(0.05)[:-1]).count("seeds are missing") == 3
    (answer,) = (found for found in glance.answers("## T\n\n" + rule) if found.holds == tuned_page.VOID)
    assert answer.question.startswith(memory.CUT)


def test_slower_is_edits_at_the_rate_of_rebuilt():
    runs = campaign.load(memory.RECORD)
    assert memory.run_of(memory.SLOWER, memory.RATE, 3) == memory.run_of("edits", 1e-3, 3)
    assert memory.TUNED.best(runs, "rebuilt") == memory.RATE
    assert [run["seed"] for run in memory.fresh(runs, memory.SLOWER)] == [0, 1, 2, 3, 4]
    assert list(memory.left(runs)) == [[], [], []]
    assert list(memory.left(runs[:-1]))[-1] == [(memory.SLOWER, memory.RATE, 4)]


def test_each_recorded_run_had_the_mechanism():
    runs = campaign.load(memory.RECORD)
    gaps = {arm: [run["gap"] for run in memory.fresh(runs, arm)] for arm in ("edits", "rebuilt", memory.SLOWER)}
    for run in runs:
        assert len(run["curve"]) == memory.STEPS
        assert (run["broken"] > 0.5) == (run["arm"] in ("edits", memory.SLOWER)), run
    assert min(gaps["rebuilt"]) > max(gaps["edits"])
    median = {arm: statistics.median(values) for arm, values in gaps.items()}
    assert round(median["rebuilt"] / median["edits"]) == 5 and memory.void(runs) == {memory.CUT}
    assert round(median["rebuilt"] / median[memory.SLOWER]) == 25 and not memory.void(runs, memory.SLOWER)
    assert 15 < min(gaps["rebuilt"]) / max(gaps[memory.SLOWER]) < 16
    fallen = [run["curve"] for run in memory.fresh(runs, "edits")[1:3]]
    said = [[round(x, 2) for x in (max(curve[:6]), min(curve[4:8]), curve[-1])] for curve in fallen]
    assert said == [[0.79, 0.02, 0.0], [0.8, 0.26, 0.18]], "as the page says"


def test_a_rate_at_an_edge_is_told():
    tuned = campaign.Tuned(("a", "b", "c", "d"), (0.1, 0.2, 0.3), (0,), "figure")
    ends = {"a": (1, 2, 3), "b": (1, 3, 2), "c": (3, 2, 1), "d": (2, 2, 2)}
    runs = [
        {"arm": arm, "rate": rate, "seed": 100, "figure": end}
        for arm, found in ends.items()
        for rate, end in zip(tuned.rates, found, strict=True)
    ]
    told = [tuned.chosen(runs, arm) for arm in tuned.arms]
    assert told == ["0.3 (highest tried)", "0.2", "0.1 (lowest tried)", "0.1"]
    assert tuned.chosen(runs[:2], "a") == "" and campaign.chosen(0.1, (0.1,)) == "0.1"


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
