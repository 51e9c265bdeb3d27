"""Hints by stages: who gets one, what it says, what is dropped meanwhile, and where it ends."""

import pickle
from dataclasses import replace

import made
import pytest

from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.dataflow.curricula.tracked import Tracked
from gimbal.dataflow.filters.superseded import Superseded
from gimbal.environments.dataset import Rows
from gimbal.environments.worked import Worked
from gimbal.recipes.papers.data.ghpo import ghpo
from gimbal.records import Drop, Group
from gimbal.rewards.expected import Expected
from gimbal.runtime.local import Trainer

TASKS = Rows(rows=[{"prompt": f"q{i}", "solution": "abcdefgh"} for i in range(3)])
SPEC = Hinted(order=Epochs(shuffle=False), template="{prompt}:{hint}")


def finished(task, *scores):
    one = made.rollout(task=task)
    rollouts = tuple(replace(one, sample=i, score=x, scores={"right": 1 - x}) for i, x in enumerate(scores))
    return Group.of(0, task, rollouts)


def served(live, *scores):
    """The next task, after which a group of it with these scores is seen; and what becomes of the group."""
    task = live.next()
    group = finished(task, *scores)
    live.observe(group)
    return task, Superseded()(group) != group


def test_by_hand_failure_after_failure():
    live = SPEC.start(TASKS, 0)
    seen = [served(live, 0.0, 0.5) for _ in range(4)]
    assert [(task.prompt, task.columns["hint"], dropped) for task, dropped in seen] == [
        ("q0", 0.0, True),
        ("q0:ab", 0.25, True),
        ("q0:abcd", 0.5, True),
        ("q0:abcdef", 0.75, False),  # the last result stands
    ]
    assert len({task.id for task, _ in seen}) == 4
    assert live.next().prompt == "q1"


def test_one_success_keeps_the_group_as_it_is():
    live = SPEC.start(TASKS, 0)
    assert served(live, 0.0, 1.0)[1] is False and live.next().prompt == "q1"


def test_a_success_under_a_hint_ends_the_series():
    live = SPEC.start(TASKS, 0)
    served(live, 0.0)
    task, dropped = served(live, 1.0, 0.0)
    assert (task.prompt, dropped, live.next().prompt) == ("q0:ab", False, "q1")


def test_failure_is_by_the_named_reward():
    live = replace(SPEC, right="right").start(TASKS, 0)
    assert served(live, 1.0, 1.0)[1] is True and served(live, 0.0, 1.0)[0].prompt == "q0:ab"


@pytest.mark.parametrize(
    ("spec", "tasks"),
    [
        (replace(SPEC, stages=()), TASKS),
        (SPEC, Rows(rows=[{"prompt": f"q{i}"} for i in range(3)])),
        (SPEC, Rows(rows=[{"prompt": f"q{i}", "solution": ""} for i in range(3)])),
    ],
    ids=["no stages", "no reference", "an empty one"],
)
def test_reduces_to_the_order_without_hints(spec, tasks):
    live = spec.start(tasks, 0)
    seen = [served(live, 0.0) for _ in range(3)]
    assert [task.prompt for task, _ in seen] == ["q0", "q1", "q2"] and not any(dropped for _, dropped in seen)


def test_a_stage_of_1_shows_the_whole_solution():
    live = replace(SPEC, stages=(1.0,)).start(TASKS, 0)
    served(live, 0.0)
    assert live.next().prompt == "q0:abcdefgh"


def test_the_first_tasks_get_no_hints():
    live = replace(SPEC, begin=1).start(TASKS, 0)
    assert [served(live, 0.0)[0].prompt for _ in range(3)] == ["q0", "q1", "q1:ab"]


def test_chat_prompts_are_hinted_in_the_last_message():
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+2?"}]
    live = SPEC.start(Rows(rows=[{"prompt": messages, "solution": "four"}]), 0)
    served(live, 0.0)
    asked = live.next()
    assert asked.prompt == "" and [m["content"] for m in asked.columns["messages"]] == ["Be brief.", "2+2?:f"]


def test_braces_in_prompts_and_hints_stay():
    live = replace(SPEC, template="{hint}|{prompt}").start(
        Rows(rows=[{"prompt": "{hint}{}", "solution": "{prompt}"}]), 0
    )
    served(live, 0.0)
    assert live.next().prompt == "{p|{hint}{}"


def test_trackers_inside_learn_of_bare_tasks_alone():
    live = replace(SPEC, order=Tracked(order=Epochs(shuffle=False))).start(TASKS, 0)
    served(live, 0.0)
    before = live.order.state_dict()["counts"]
    served(live, 1.0)
    assert live.order.state_dict()["counts"] == before


def test_the_share_is_a_reward_of_no_weight():
    live = SPEC.start(TASKS, 0)
    served(live, 0.0)
    assert Expected(column="hint", name="hint", weight=0.0)(finished(live.next(), 0.0, 0.0)) == [0.25, 0.25]


def test_it_goes_on_where_it_was():
    live = SPEC.start(TASKS, 0)
    served(live, 0.0)
    again = SPEC.start(TASKS, 0)
    again.load_state_dict(pickle.loads(pickle.dumps(live.state_dict())))
    assert [live.next() for _ in range(4)] == [again.next() for _ in range(4)]


@pytest.mark.parametrize("stages", [(0.5, 0.25), (0.0,), (0.5, 1.5), (0.5, 0.5)])
def test_stages_rise(stages):
    with pytest.raises(ValueError, match="rising shares"):
        Hinted(stages=stages)


def test_a_template_shows_both():
    with pytest.raises(ValueError, match="needs"):
        Hinted(template="{prompt}")


def test_groups_without_a_hint_column_pass():
    group = finished(TASKS[0], 0.0)
    assert not isinstance(Superseded()(group), Drop)


@pytest.mark.slow
def test_in_a_run_failed_groups_are_counted_and_hints_reach_the_learner(single_thread):
    run = replace(ghpo(), prompts_per_step=4, num_generations=2, held_out=None, threads=1, steps=1)
    trainer = Trainer(run)
    try:
        metrics, groups, _ = trainer.advance()
        metrics, groups, _ = trainer.advance()
    finally:
        trainer.close()
    assert metrics["drops/hinted"] > 0
    hinted = [group.task for group in groups if group.task.columns["hint"] > 0]
    assert hinted and all(task.prompt.rpartition("<think>")[2] for task in hinted)


def test_worked_sums():
    task = Worked()[0]
    thought = f"<think>{task.columns['solution']}</think>"
    assert task.columns["completion"] == f"{thought}<answer>{task.answer}</answer>"
    assert task.columns["solution"].split()[-1].endswith(f"={task.answer}")
    with pytest.raises(ValueError, match="chain_sum"):
        Worked(tasks=replace(Worked().tasks, name="spell_backward"))
