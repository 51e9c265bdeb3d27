"""Columns of tasks that a part goes by: one that cannot be read, or that no row has, is said before the first step."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import denoising_run, rows, small_run

from gimbal.dataflow.budgets.fixed import FixedBudget
from gimbal.dataflow.curricula.hinted import Hinted
from gimbal.environments.dataset import Dataset, Rows
from gimbal.records import Task
from gimbal.rewards.function import Function
from gimbal.rewards.isolation import RewardError
from gimbal.runtime import compose
from gimbal.runtime.run import HeldOut
from gimbal.workflows.guided import Guided


@pytest.mark.parametrize("value", ["many", 0, -1, 2.5, True, [4]])
def test_a_number_of_rollouts_that_is_none_is_refused_with_its_row(tmp_path, value):
    table = [{"prompt": str(n), "num_generations": 4} for n in range(3)]
    with pytest.raises(
        ValueError, match=r"^task rows?:\d: its column num_generations is .*; it must be a whole number"
    ):
        compose.accepted(small_run(tasks=Rows(rows=[*table, {"prompt": "4", "num_generations": value}]), rewards=()))
    with pytest.raises(ValueError, match="its column num_generations"):
        FixedBudget(4, 8).plan([Task(id="a", prompt="", columns={"num_generations": value})])


def test_a_number_of_rollouts_may_be_text_or_left_out(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_text("prompt,num_generations\na,2\nb,\nc,3\n")
    tasks = Dataset(path=str(file))
    compose.accepted(small_run(tasks=tasks, rewards=()))
    assert [plan.rollouts for plan in FixedBudget(4, 8).plan([tasks[n] for n in range(3)])] == [2, 4, 3]
    file.write_text("prompt,num_generations\na,many\n")
    with pytest.raises(ValueError, match=r"^task rows:2: its column num_generations is 'many'"):
        compose.accepted(small_run(tasks=Dataset(path=str(file)), rewards=()))


@pytest.mark.parametrize(
    ("changes", "column"),
    [({"curriculum": Hinted()}, "solution"), ({"workflow": Guided()}, "completion")],
)
def test_a_part_whose_column_no_row_has_is_refused_and_one_row_is_enough(changes, column):
    with pytest.raises(ValueError, match=f"goes by the column '{column}' of tasks, and no row has it"):
        compose.accepted(small_run(rewards=(), **changes))
    some = Rows(rows=[*rows(3).rows, {"prompt": "x", column: "y"}])
    compose.accepted(small_run(tasks=some, rewards=(), **changes))


def test_parts_that_are_set_to_do_without_it_are_not_refused():
    compose.accepted(small_run(rewards=(), curriculum=Hinted(stages=())))
    compose.accepted(small_run(rewards=(), workflow=Guided(guides=0)))


def texts(prompts, completions, **columns):
    return [0.0 for _ in completions]


def of_group(group):
    return [0.0 for _ in group.rollouts]


def test_a_reward_of_texts_is_refused_where_pictures_are_drawn():
    said = r"reward texts scores texts .*f\(rollout\) -> float; the picture is rollout.decisions.sample_ND\[0\]"
    run = denoising_run(rewards=(Function(function=texts),))
    with pytest.raises(RewardError, match=said):
        compose.opened(run)
    with pytest.raises(RewardError, match=said):
        compose.accepted(run)
    assert not compose.accepted(small_run(tasks=Rows(rows=[{"prompt": "4"}]), rewards=(Function(function=texts),)))


def test_rows_of_prompts_are_not_read_by_a_network_of_classes():
    run = denoising_run(tasks=Rows(rows=[{"prompt": "a four", "answer": "4"}]), rewards=())
    (said,) = compose.accepted(run)
    assert "gimbal-digits reads no prompts" in said and "column `label`" in said
    assert not compose.accepted(replace(run, tasks=Rows(rows=[{"prompt": "a four", "label": 4}])))
    assert not compose.accepted(denoising_run(rewards=()))


def test_a_reward_of_groups_is_told_of_an_evaluation_of_single_rollouts():
    held_out = HeldOut(tasks=Rows(rows=[{"prompt": "5"}]), samples=1)
    run = small_run(tasks=Rows(rows=[{"prompt": "4"}]), rewards=(Function(function=of_group),), held_out=held_out)
    (said,) = compose.accepted(run)
    assert "reward of_group is given the whole group" in said and "set held_out.samples=" in said
    assert not compose.accepted(replace(run, held_out=replace(held_out, samples=4)))
    assert not compose.accepted(replace(run, held_out=replace(held_out, rewards=(Function(function=texts),))))
