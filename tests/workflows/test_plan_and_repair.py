"""Two loops: what each is asked, which failure leads to which, what each row is worth, and what the loops reduce to."""

from dataclasses import replace

import pytest
import torch
from dice import POLICY
from speaker import Speaker

from gimbal.advantages.estimators.revision_normalized import RevisionNormalized
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.base import Moment
from gimbal.environments.one_program import OneProgram
from gimbal.environments.shared_sums import HANDED, SharedSums, SumStages, SumStaging
from gimbal.environments.tools import Calculator
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.papers.agents.rema import rema
from gimbal.records import Drop, Group, Task
from gimbal.workflows.plan_and_execute import EXECUTOR, PLANNER, PlanAndExecute
from gimbal.workflows.plan_and_repair import PlanAndRepair
from gimbal.workflows.runner import Driven

SUM = rema().tasks[0]
TERMS = SUM.columns["metadata"]["expression"].split()


def working(first, slip=0):
    """What an executor writes who begins with this number; ``slip`` is added to its first step."""
    steps, last = [], first
    for sign, term in zip(TERMS[3::2], TERMS[4::2], strict=True):
        value = last + (int(term) if sign == "+" else -int(term)) + slip
        steps.append(f"{last}{sign}{term}={value}")
        slip, last = 0, value
    return f"<think>{' '.join(steps)}</think><answer>{last}</answer>"


FIRST = int(TERMS[0]) + (int(TERMS[2]) if TERMS[1] == "+" else -int(TERMS[2]))
RIGHT, WRONG, SLIPPED = working(FIRST), working(FIRST + 1), working(FIRST, slip=1)
LOOPS = PlanAndRepair(
    inside=PlanAndExecute(template="{prompt}|{plan}!", plan=r"m(\d)"),
    checks=SumStages(),
    repair="{prompt}|{plan}~{seen}~{tried}!",
    again="{prompt}{failures}",
    past="({plan}:{seen})",
    overlap=0,
)


def outcome(workflow, plans, does, task=SUM):
    """Plans ``plans`` one after the other; ``does`` says what each prompt of the executor is answered with."""
    plans, does = iter(plans), iter(does)
    live = Driven(
        engine=Speaker(says=lambda context: next(does if context.endswith("!") else plans)), workflow=workflow
    ).start(POLICY)
    live.load(0, POLICY.state_dict())
    live.submit(Request(group=0, task=task, sample=0, sampling=Sampling(max_length=80), seed=7))
    (item,) = drained(live).values()
    return item.outcome


def test_stages_of_a_sum_by_hand():
    live = SumStages().open()
    live.reset(SUM, 0)
    assert isinstance(live, SumStaging)
    for text, passed, said in (
        ("<answer>1</answer>", 0, "format"),
        (SLIPPED, 1, "working"),
        (RIGHT.replace(TERMS[4], "1" + TERMS[4]), 1, "working"),  # another term
        (RIGHT.split(" ")[0] + "</think><answer>1</answer>", 1, "working"),  # a step is missing
        (RIGHT.replace("<answer>", "<answer>1"), 1, "working"),  # the answer is not what the working ends with
        (WRONG, 2, "answer"),
        (RIGHT, 3, ""),
    ):
        moment = live.fork().step(text)
        assert (moment.reward, moment.observation, moment.terminated) == (passed / 3, said, True), text
    with pytest.raises(ValueError, match="no sum that is handed over"):
        live.reset(Task(id="t"), 0)


def test_a_slip_is_repaired_and_a_sound_failure_gets_a_new_plan():
    episode = outcome(LOOPS, ["m1", "m2"], [SLIPPED, WRONG, RIGHT])
    assert [row.role for row in episode.rows] == [PLANNER, EXECUTOR, EXECUTOR, PLANNER, EXECUTOR]
    assert [row.task.prompt.removeprefix(SUM.prompt) for row in episode.rows] == [
        "", "|1!", f"|1~working~{SLIPPED}!", "(1:answer)", "|2!",
    ]  # fmt: skip
    assert [row.scores["outcome"] for row in episode.rows] == [2 / 3, 1 / 3, 2 / 3, 1, 1]
    assert [row.scores["before"] for row in episode.rows] == [0, 0, 1 / 3, 2 / 3, 2 / 3]
    assert episode.score == 1 and len(episode.acts) == 3 and all(row.mask_S.all() for row in episode.rows)


def test_all_plans_that_failed_are_told():
    episode = outcome(replace(LOOPS, attempts=3), ["m1", "none", "m3"], [WRONG, WRONG])
    assert episode.rows[-2].task.prompt == f"{SUM.prompt}(1:answer)(none:no plan was found in it)"
    assert [row.role for row in episode.rows] == [PLANNER, EXECUTOR, PLANNER, PLANNER, EXECUTOR]
    assert episode.score == 0 and [row.scores["outcome"] for row in episode.rows] == [2 / 3, 2 / 3, 0, 2 / 3, 2 / 3]
    assert [row.scores["before"] for row in episode.rows] == [
        0,
        0,
        2 / 3,
        0,
        0,
    ]  # who hands nothing over loses what was there


@pytest.mark.parametrize("workflow", [LOOPS, replace(LOOPS, tries=1), replace(LOOPS, replan=1.0)])
def test_what_the_executions_gain_sums_to_the_last_share(workflow):
    does = [SLIPPED, WRONG, SLIPPED, WRONG, SLIPPED]
    episode = outcome(replace(workflow, attempts=5), [f"m{n}" for n in range(5)], does)
    gained = {PLANNER: [], EXECUTOR: []}
    for row in episode.rows:
        gained[row.role].append(row.scores["outcome"] - row.scores["before"])
    assert sum(gained[EXECUTOR]) == pytest.approx(1 / 3)
    if workflow.tries == 1:  # each plan has one execution, and gains what that does
        assert gained[PLANNER] == gained[EXECUTOR]


def test_tries_end_the_repair_of_a_plan():
    episode = outcome(replace(LOOPS, attempts=5, tries=2), ["m1", "m2", "m3"], [SLIPPED] * 5)
    assert "".join(row.role[0] for row in episode.rows) == "peepeepe"


@pytest.mark.parametrize("changes", [{"replan": 1.0, "tries": 4}, {"replan": 0.0}, {"tries": 1}])
def test_one_loop_alone(changes):
    """S_max = 1 is one plan that is repaired, T_max = 1 a new plan for each execution."""
    workflow = replace(LOOPS, attempts=4, **changes)
    episode = outcome(workflow, ["m1", "m2", "m3", "m4"], [SLIPPED, WRONG, WRONG, SLIPPED])
    assert "".join(row.role[0] for row in episode.rows) == ("peeee" if changes.get("replan") == 1 else "pepepepe")
    assert episode.score == 0


def test_one_attempt_is_plan_and_execute_to_the_bit():
    policy = CausalLM().load()
    inside = rema().workflow
    one = PlanAndRepair(inside=inside, checks=SumStages(), repair=HANDED, attempts=1)
    drawn = []
    for workflow in (inside, one):
        live = Driven(engine=Native(slots=4, precision="float32"), workflow=workflow).start(policy)
        live.load(0, policy.state_dict())
        for sample in range(4):
            live.submit(Request(group=0, task=SUM, sample=sample, sampling=Sampling(max_length=40), seed=0))
        drawn.append([item.outcome for _, item in sorted(drained(live).items())])
    for plain, looped in zip(*drawn, strict=True):
        assert [row.text for row in plain.rows] == [row.text for row in looped.rows]
        assert all(torch.equal(a.behavior_S, b.behavior_S) for a, b in zip(plain.rows, looped.rows, strict=True))
        assert looped.score in (0, 1) and plain.score is None


def test_rows_are_compared_within_their_role():
    solved, failed = (
        outcome(replace(LOOPS, attempts=2), ["m1", "m2"], does).map(
            lambda row, sample=sample: replace(row, sample=sample)
        )
        for sample, does in enumerate(([SLIPPED, RIGHT], [WRONG, WRONG]))
    )
    batch = pack([Group(index=0, task=SUM, episodes=(solved, failed))])
    found = RevisionNormalized(across=0.0, ddof=0)(batch)[:, 0]
    plans, executions = torch.tensor([1.0, 2 / 3, 2 / 3]), torch.tensor([1 / 3, 1.0, 2 / 3, 2 / 3])
    expected = [(x - x.mean()) / (x.std(correction=0) + 1e-6) for x in (plans, executions)]
    place = torch.tensor([row.role == EXECUTOR for one in (solved, failed) for row in one.rows])
    torch.testing.assert_close(found[~place], expected[0])
    torch.testing.assert_close(found[place], expected[1])
    by_turns = RevisionNormalized(within=0.0, across=1.0, ddof=0)(batch)[:, 0]
    gained = torch.tensor([1 / 3, 2 / 3, 2 / 3, 0.0])  # of four executions, two and two
    torch.testing.assert_close(by_turns[place], (gained - gained.mean()) / (gained.std(correction=0) + 1e-6))


def test_checks_that_break_drop_the_attempt(monkeypatch):
    def breaks(self, action):
        raise OSError("no disk")

    monkeypatch.setattr(SumStaging, "step", breaks)
    dropped = outcome(LOOPS, ["m1"], [RIGHT])
    assert isinstance(dropped, Drop) and dropped.reason == "environment_error" and "no disk" in dropped.said
    assert dropped.drawn > 0


def test_a_reward_that_is_no_share_of_stages_ends_the_run(monkeypatch):
    monkeypatch.setattr(SumStaging, "step", lambda self, action: Moment(reward=2.0, terminated=True))
    with pytest.raises(ValueError, match="SumStages, answered with a reward of 2; it is the share of the stages"):
        outcome(LOOPS, ["m1"], [RIGHT])


def test_templates_are_read_before_the_first_step():
    PlanAndRepair().accepts(SUM)
    for wrong in ({"past": "{0}"}, {"again": "{tried}"}, {"repair": "{plan} {other}"}):
        with pytest.raises(ValueError, match="a template reads"):
            PlanAndRepair(**wrong).accepts(SUM)


def test_in_a_chat_each_role_is_asked_in_one_message():
    chat = replace(SUM, prompt="", columns={**SUM.columns, "messages": [{"role": "user", "content": "Add."}]})
    workflow = replace(PlanAndRepair(checks=SumStages()), inside=replace(PlanAndRepair().inside, plan=r"m(\d)"))
    live = Driven(engine=Speaker(says=lambda context: "m1" if "Carry" not in context else "x"), workflow=workflow)
    live = live.start(POLICY)
    live.load(0, POLICY.state_dict())
    live.submit(Request(group=0, task=chat, sample=0, sampling=Sampling(max_length=8), seed=7))
    (item,) = drained(live).values()
    planner, executor, repaired, *_ = item.outcome.rows
    assert [row.task.columns["messages"][0]["content"] for row in (planner, executor)] == [
        "Add.", "user: Add.\n\nPlan: 1\n\nCarry it out.",
    ]  # fmt: skip
    assert "This came of it:\nformat" in repaired.task.columns["messages"][0]["content"]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"tries": 0}, "attempts=6 and tries=0"),
        ({"attempts": 0}, "attempts=0"),
        ({"replan": 1.5}, "replan is 1.5"),
        ({"repair": "{prompt}"}, "does not know its plan"),
        ({"checks": Calculator()}, "Calculator, which is called in the middle"),
        ({"deadline": 0.0}, "deadline=0.0"),
    ],
)
def test_what_cannot_be_is_refused(wrong, reason):
    with pytest.raises(ValueError, match=reason):
        PlanAndRepair(**wrong)
    assert isinstance(PlanAndRepair().checks, OneProgram) and isinstance(rema().tasks, SharedSums)
