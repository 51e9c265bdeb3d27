"""A context that some attempts read and no row has: who reads it, what trains, and what stays of the sampler's probabilities."""

from dataclasses import replace

import pytest
import torch
from dice import POLICY, plain
from speaker import Speaker

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.policies.token import Sampling
from gimbal.records import Task
from gimbal.workflows.privileged_context import AWARE, UNAWARE, PrivilegedContext
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

TASK = Task(id="t", prompt="x=", columns={"context": "7"})


def live_of(workflow, engine=None):
    engine = engine or Speaker(says=lambda seen: "7" if "7" in seen else "0")
    live = Driven(engine=engine, workflow=workflow).start(POLICY)
    live.load(0, POLICY.state_dict())
    return live


def asked(live, task=TASK, samples=4):
    for sample in range(samples):
        live.submit(Request(group=0, task=task, sample=sample, sampling=Sampling(max_length=12), seed=7))
    return live


def played(workflow, engine=None, task=TASK, samples=4):
    return [item.outcome for _, item in sorted(drained(asked(live_of(workflow, engine), task, samples)).items())]


def prompt(row):
    tokens = row.decisions
    return POLICY.tokenizer.decode(tokens.ids_NL[0, : int(tokens.prompt_N[0])])


@pytest.mark.parametrize(("share", "reads"), [(0.0, []), (0.25, [0]), (0.5, [0, 2]), (1.0, [0, 1, 2, 3])])
def test_a_share_reads_the_context_and_no_row_has_it(share, reads):
    rows = [episode.rows[0] for episode in played(PrivilegedContext(aware=share))]
    assert [row.role for row in rows] == [AWARE if place in reads else UNAWARE for place in range(4)]
    assert [row.text for row in rows] == ["7" if place in reads else "0" for place in range(4)]
    assert {prompt(row) for row in rows} == {"x="} and all(row.task == TASK for row in rows)
    assert all(row.length == 2 and row.mask_S.all() for row in rows)


def test_without_readers_or_with_nothing_to_read_it_is_a_single_turn():
    plain = [episode.rows[0] for episode in played(SingleTurn(), Native(slots=4))]
    for workflow in (PrivilegedContext(aware=0.0), PrivilegedContext(aware=1.0, template="{prompt}")):
        for one, other in zip(plain, [e.rows[0] for e in played(workflow, Native(slots=4))], strict=True):
            assert one.text == other.text and torch.equal(one.behavior_S, other.behavior_S)
            assert torch.equal(one.decisions.ids_NL, other.decisions.ids_NL)


def test_behavior_is_what_was_sampled_with():
    (aware,) = played(PrivilegedContext(aware=1.0), Native(slots=1), samples=1)
    shown = replace(TASK, prompt="7\nx=")
    (drawn,) = played(SingleTurn(), Native(slots=1), task=shown, samples=1)
    assert aware.text == drawn.text and torch.equal(aware.rows[0].behavior_S, drawn.rows[0].behavior_S)
    assert prompt(aware.rows[0]) == "x=" and prompt(drawn.rows[0]) == "7\nx="


@pytest.mark.parametrize("at", [1, 3])
def test_it_continues_from_its_state_to_the_bit(at):
    """Also attempts that were reading when the state was saved."""
    workflow, engine = PrivilegedContext(), Native(slots=4)
    alone = {key: plain(item.outcome) for key, item in drained(asked(live_of(workflow, engine))).items()}
    live = asked(live_of(workflow, engine))
    found = {item.key: plain(item.outcome) for _ in range(at) for item in live.step()}
    assert len(found) < len(alone)
    other = live_of(workflow, engine)
    other.load_state_dict(live.state_dict())
    assert found | {key: plain(item.outcome) for key, item in drained(other).items()} == alone


def test_a_context_that_the_model_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="this model holds at most 512 tokens"):
        played(PrivilegedContext(), Native(slots=4), task=replace(TASK, columns={"context": "7" * 5000}))


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_no_share_is_refused(share):
    with pytest.raises(ValueError, match="share of a group's attempts, 0 to 1"):
        PrivilegedContext(aware=share)


@pytest.mark.parametrize("template", ["", "{", "what?"])
def test_a_template_that_reads_nothing_is_refused(template):
    with pytest.raises(ValueError, match="reads nothing of a task: write what it reads in braces"):
        PrivilegedContext(template=template)


def test_a_task_without_the_context_is_refused_before_the_first_step():
    with pytest.raises(ValueError, match=r"a template reads \{context\}, which task t lacks"):
        PrivilegedContext().accepts(Task(id="t", prompt="x="))


def test_the_recipe_reads_its_rules():
    run = recipes.load("policy_rollout")
    task = run.tasks[0]
    run.workflow.accepts(task)
    assert task.columns["context"].count("\n") == 2 and task.prompt.endswith("\n=")
