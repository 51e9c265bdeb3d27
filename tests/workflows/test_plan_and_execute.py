"""Two roles: what is handed over, what each row is, and where nobody executes."""

from dataclasses import replace

import pytest
import torch

from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.shared_sums import HANDED, SharedSums
from gimbal.learning.separate import SeparateWeights
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.papers.agents.rema import rema
from gimbal.records import Episode, Group, Task
from gimbal.report.metrics import role_metrics
from gimbal.workflows.base import AbstractWorkflow, Draw
from gimbal.workflows.branching import Branching
from gimbal.workflows.plan_and_execute import PlanAndExecute
from gimbal.workflows.runner import Driven

POLICY = CausalLM().load()
TASK = Task(id="t", prompt="12 + 23 + 34 =\n", answer="69")


def drawn(workflow, task=TASK, samples=3, **owners):
    engine = Driven(engine=Native(slots=4, precision="float32"), workflow=workflow, owners=owners).start(POLICY)
    engine.load(0, POLICY.state_dict())
    for member in engine.separate.values():
        member.load(0, POLICY.state_dict())
    for sample in range(samples):
        request = Request(group=0, task=task, sample=sample, sampling=Sampling(max_length=24), seed=0)
        engine.submit(request)
    return [item.outcome for _, item in sorted(drained(engine).items())]


def test_the_executor_reads_the_plan_and_not_the_prompt():
    workflow = PlanAndExecute(template="{plan} + 34 =\n", plan=r"=(\d+)\s*$", stop=(" ",))
    planned, executed = drawn(workflow)[0].rows
    assert (planned.role, executed.role) == ("planner", "executor")
    assert planned.text == "<think>12+23=35 " and planned.stop == "stop"
    assert executed.task.prompt == "35 + 34 =\n" and executed.text.startswith("<think>")
    assert (planned.row, executed.row) == (0, 1) and executed.task.id == TASK.id


def test_in_a_chat_the_executor_is_asked_in_one():
    chat = replace(TASK, prompt="", columns={"messages": [{"role": "user", "content": "12 + 23 ="}], "unit": "m"})
    planned, executed = drawn(PlanAndExecute(template="{prompt} {plan} {unit}"), chat)[0].rows
    (message,) = executed.task.columns["messages"]
    assert message == {"role": "user", "content": f"user: 12 + 23 = {planned.text} m"} and not executed.task.prompt


def test_two_engines_of_equal_weights_draw_what_one_does():
    one, two = drawn(PlanAndExecute()), drawn(PlanAndExecute(), executor="executor")
    for shared, apart in zip(one, two, strict=True):
        for row, other in zip(shared.rows, apart.rows, strict=True):
            assert torch.equal(row.behavior_S, other.behavior_S) and (row.text, row.role) == (other.text, other.role)


def test_a_pattern_that_never_matches_is_a_single_turn():
    alone = [outcome.rows for outcome in drawn(PlanAndExecute(plan="(never)"))]
    assert [len(rows) for rows in alone] == [1, 1, 1] and {rows[0].role for rows in alone} == {"planner"}


@pytest.mark.parametrize(("plan", "reason"), [("(", "no regular expression"), ("a+", "must have a group")])
def test_a_pattern_that_hands_nothing_over_is_refused(plan, reason):
    with pytest.raises(ValueError, match=reason):
        PlanAndExecute(plan=plan)


def test_sums_are_handed_over_behind_their_first_two_terms():
    task = rema().tasks[0]
    first, sign, second, *rest = task.columns["metadata"]["expression"].split()
    total = int(first) + (int(second) if sign == "+" else -int(second))
    asked = HANDED.format(plan=total, **{name: task.columns[name] for name in ("before", "after")})
    assert asked == task.prompt.replace(f"{first} {sign} {second}", str(total)) and len(rest) == 4
    with pytest.raises(ValueError, match="hands over chain_sum"):
        SharedSums(tasks=replace(rema().tasks.tasks, name="spell_backward"))


def test_metrics_of_roles_by_hand():
    outcomes = drawn(PlanAndExecute(), samples=2)
    episodes = outcomes[0].scored(1.0, {}), outcomes[1].scored(0.0, {})
    batch = pack([Group(index=0, task=TASK, episodes=episodes)])
    found = role_metrics(batch)
    rows = {role: [row for one in outcomes for row in one.rows if row.role == role] for role in ("planner", "executor")}
    assert found["role/planner/reward"] == found["role/executor/reward"] == 0.5
    assert found["role/planner/length"] == sum(row.length for row in rows["planner"]) / 2
    assert found["role/planner/frac"] + found["role/executor/frac"] == pytest.approx(1)
    assert role_metrics(replace(batch, roles=("planner",), role_N=torch.zeros_like(batch.role_N))) == {}


class Wrong(AbstractWorkflow):
    """Draws for a role that it does not have, or goes on with a row in another's."""

    players = frozenset({"a", "b"})

    def __init__(self, first, then):
        self.first, self.then = first, then

    def __call__(self, attempt):
        row = yield Draw(task=attempt.task, sampling=attempt.sampling, role=self.first, most=2)
        return Episode.of((yield Draw(row=row, role=self.then)))


def test_a_role_that_is_not_the_workflows_or_the_rows_is_refused():
    with pytest.raises(ValueError, match="role='c'; the players of this workflow are a, b"):
        drawn(Wrong("c", ""))
    with pytest.raises(ValueError, match="the role that began a row continues it"):
        drawn(Wrong("a", "b"))
    assert {outcome.last.role for outcome in drawn(Wrong("a", ""), b="b")} == {"a"}
    assert {outcome.last.role for outcome in drawn(Wrong("a", "a"), a="m")} == {"a"}


def test_a_branch_goes_on_as_the_role_whose_row_it_branches_off():
    trunk, branch = drawn(Branching(inside=rema().workflow, trunks=1), rema().tasks[0], samples=2, executor="executor")
    (row,) = branch.rows
    kept = int((~row.mask_S).sum())
    assert [one.role for one in trunk.rows] == ["planner", "executor"] and row.role == "executor"
    assert 0 < kept < row.length and row.task == trunk.last.task and (row.sample, trunk.last.sample) == (1, 0)


class Renamed(AbstractWorkflow):
    """Says afterwards that another role has acted."""

    players = frozenset({"a", "b"})

    def __call__(self, attempt):
        row = yield Draw(task=attempt.task, sampling=attempt.sampling, role="a", most=2)
        return Episode.of(replace(row, role="b"))


def test_a_row_does_not_train_weights_that_did_not_draw_it():
    for owners in ({"a": "m"}, {"b": "m"}, {"a": "m", "b": "n"}):
        with pytest.raises(ValueError, match="a row of role 'b' that 'a' drew with other weights"):
            drawn(Renamed(), **owners)
    for owners in ({}, {"a": "m", "b": "m"}):
        assert {outcome.last.role for outcome in drawn(Renamed(), **owners)} == {"b"}


def test_the_recipe_gives_the_executor_a_model():
    assert rema().owners == {"executor": "executor"} and rema().separate == {"executor": SeparateWeights()}
