"""Delegated tasks: what each role sees, what comes back, what an episode is made of, and where nothing is delegated."""

from dataclasses import replace

import pytest
import torch
from dice import POLICY
from speaker import Speaker

from gimbal.advantages import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.environments.lookups import Lookups, Pages, Turning, following, page
from gimbal.ops import SequenceMean, TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.papers.agents.coda_peco import coda_peco
from gimbal.records import Drop, Episode, Group, Part, Task
from gimbal.workflows.base import AbstractWorkflow
from gimbal.workflows.delegation import Delegation
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.plan_and_execute import EXECUTOR, PLANNER, PlanAndExecute
from gimbal.workflows.retrying import Retrying
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

TASK = Task(id="t", prompt="12+23+34!", answer="69", columns={"unit": "m"})
PLAIN = Delegation(template="{task} {unit}=", delegate=r"^do (.+)$", result=r"(\d+)", told="[{result}]")


def outcome(says, workflow=PLAIN, task=TASK, sample=0, most=40):
    live = Driven(engine=Speaker(says=says), workflow=workflow).start(POLICY)
    live.load(0, POLICY.state_dict())
    live.submit(Request(group=0, task=task, sample=sample, sampling=Sampling(max_length=most), seed=7))
    (item,) = drained(live).values()
    return item.outcome


def adds(context):
    """Delegates two sums one after the other, and answers with the second; an executor works it out at length."""
    if context.endswith("="):
        first, _, second = context.removesuffix(" m=").partition("+")
        return f"let me see, {int(first) + int(second)}"
    results = context.count("[")
    return ("do 12+23", f"do {context[-3:-1]}+34", f"it is {context[-3:-1]}")[results]


def test_an_executor_sees_its_task_alone_and_only_its_result_comes_back():
    episode = outcome(adds)
    first, second, planner = episode.rows
    assert [row.role for row in episode.rows] == [EXECUTOR, EXECUTOR, PLANNER]
    assert (first.task.prompt, second.task.prompt) == ("12+23 m=", "35+34 m=")
    assert first.text.startswith("let me see, 35") and planner.task.prompt == TASK.prompt
    assert planner.text.replace("<eos>", "") == "do 12+23[35]do 35+34[69]it is 69"
    observed = planner.part_S == Part.OBSERVATION
    assert int(observed.sum()) == 8 and not (planner.mask_S & observed).any() and planner.mask_S[~observed].all()
    assert all(row.mask_S.all() for row in (first, second)) and len({row.row for row in episode.rows}) == 3


def test_a_planner_that_never_delegates_is_a_single_turn():
    for workflow in (PLAIN, replace(PLAIN, delegations=0), replace(PLAIN, delegate="(never)")):
        says = (lambda context: "69") if workflow is PLAIN else (lambda context: "do 12+23")
        (row,), (alone,) = outcome(says, workflow).rows, outcome(says, SingleTurn()).rows
        assert (row.text, row.stop) == (alone.text, "stop") and torch.equal(row.behavior_S, alone.behavior_S)
        assert row.role == PLANNER


def test_the_executor_of_one_delegation_is_that_of_plan_and_execute():
    def says(context):
        return adds(context) if context.endswith("=") else "done" if "[" in context else "do 12+23"

    executed, planner = outcome(says).rows
    planned, other = outcome(says, PlanAndExecute(template="{plan} {unit}=", plan=r"^do (.+)$")).rows
    assert (executed.text, executed.role, executed.task) == (other.text, other.role, other.task)
    assert torch.equal(executed.behavior_S, other.behavior_S) and planner.text.startswith(planned.text)


def test_all_rows_of_an_episode_have_one_advantage_and_it_counts_once():
    often, seldom = outcome(adds), outcome(lambda context: "none", sample=1)
    episodes = (often.scored(1.0, {}), seldom.scored(0.0, {}))
    batch = pack([Group(index=0, task=TASK, episodes=episodes)])
    advantage_NS = GroupNormalized(ddof=0).of_rows(batch)
    first_N = advantage_NS[torch.arange(4), batch.mask_NS.int().argmax(-1)]
    torch.testing.assert_close(first_N, torch.tensor([1.0, 1.0, 1.0, -1.0]), atol=1e-4, rtol=0)  # of two, not of four
    weight_NS = SequenceMean()(batch.mask_NS, None, batch.episode_N)
    assert float(weight_NS[:3].sum()) == pytest.approx(0.5) == float(weight_NS[3].sum())
    assert TokenMean()(batch.mask_NS)[:3].sum() > 0.8


def test_more_than_the_limit_ends_the_episode():
    episode = outcome(adds, replace(PLAIN, delegations=1))
    assert [row.role for row in episode.rows] == [EXECUTOR, PLANNER] and episode.stop == "truncated"
    short = outcome(adds, most=10)
    assert short.stop == "length" and len(short.rows) == 2  # the planner had no room for what it was told, or to go on


def test_a_result_that_is_not_found_is_told_as_nothing():
    episode = outcome(lambda context: "so" if context.endswith("=") else "done" if "[" in context else "do 1+1")
    assert episode.text.replace("<eos>", "") == "do 1+1[]done"


LOOKUP = Lookups(facts=5, mark="!")[3]
READS = replace(coda_peco().workflow, inside=Dialogue(tool=Pages(), answers=2, overlap=0))


def reads(context):
    """Delegates keys, and as an executor looks them up."""
    first, *seen = context.split("<eos>")
    if "!" in first:
        return (f"{first[0]}>", f"{following(seen[0][1])}>" if seen else "", seen[-1][:2] if seen else "")[len(seen)]
    return seen[0][seen[0].index(first[0]) :][:2] if seen else f"{first[0]}?"


def test_an_executor_has_tools_whose_answers_the_planner_never_sees():
    episode = outcome(reads, READS, LOOKUP)
    *executors, planner = episode.rows
    assert [row.role for row in episode.rows] == [EXECUTOR, EXECUTOR, PLANNER] and len(episode.acts) == 4
    assert [act.turn for act in episode.acts] == [0, 1, 2, 3], "one executor's after another's"
    for row in executors:
        assert page(LOOKUP, row.task.prompt[0]) in row.text and page(LOOKUP, row.task.prompt[0]) not in planner.text
        assert row.task.prompt[1:] == ":" and row.stop == "terminated"
    assert planner.text.replace("<eos>", "").endswith(f";{LOOKUP.answer}") and planner.length < executors[0].length


def test_a_failure_of_an_executor_is_that_of_the_episode(monkeypatch):
    def breaks(self, action):
        raise OSError("no pages")

    monkeypatch.setattr(Turning, "step", breaks)
    episode = outcome(reads, READS, LOOKUP)
    assert "no pages" in episode.error and episode.stop == "error" and len(episode.rows) == 2
    dropped = outcome(reads, READS, replace(LOOKUP, columns={}))
    assert isinstance(dropped, Drop) and dropped.drawn == 3  # the planner's first turn


class Twice(AbstractWorkflow):
    """Draws two rows at once, one of them by a generator, and names one role itself."""

    @property
    def players(self):
        return frozenset({"reader"})

    def __call__(self, attempt):
        def one():
            return (yield attempt.begin())

        rows = yield [one(), replace(attempt.begin(), role="reader")]
        return Episode(rows=tuple(rows))


def test_rows_of_an_executor_have_its_role_unless_they_have_one():
    episode = outcome(adds, replace(PLAIN, inside=Twice()))
    assert [row.role for row in episode.rows] == [EXECUTOR, "reader", EXECUTOR, "reader", PLANNER]
    assert replace(PLAIN, inside=Twice()).players == {PLANNER, EXECUTOR, "reader"}


def test_in_a_chat_the_result_is_a_message():
    chat = replace(TASK, prompt="", columns={**TASK.columns, "messages": [{"role": "user", "content": "Add."}]})
    said = []

    def says(context):
        said.append(context)
        return "35" if "m=" in context else "do 12+23" if len(said) == 1 else "done"

    first, planner = outcome(says, task=chat).rows
    assert first.task.columns["messages"] == [{"role": "user", "content": "12+23 m="}]
    assert said[-1].endswith("do 12+23<eos>[35]\n") and planner.text.replace("<eos>", "").endswith("done")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"delegate": "("}, r"delegate is '\(', which is no regular expression"),
        ({"result": "a+"}, "result is 'a\\+'; it must have a group"),
        ({"template": "{prompt}"}, "nothing is handed over"),
        ({"told": "done"}, "nothing is handed over"),
        ({"delegations": -1}, "delegations is -1"),
        ({"inside": Retrying()}, "Retrying drives whole groups"),
    ],
)
def test_what_cannot_be_is_refused(wrong, reason):
    with pytest.raises(ValueError, match=reason):
        Delegation(**wrong)


def test_templates_are_read_before_the_first_step():
    PLAIN.accepts(TASK)
    for wrong in ({"template": "{task} {size}"}, {"told": "{result} {size}"}):
        with pytest.raises(ValueError, match="a template reads"):
            replace(PLAIN, **wrong).accepts(TASK)
