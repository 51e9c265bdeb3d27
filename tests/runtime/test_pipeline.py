"""What leaves the dataflow is counted: rollouts that no reward applies to, and rollouts that a filter takes out."""

import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, small_run

from gimbal.advantages import Stratified
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, AbstractFilter, Plan
from gimbal.dataflow.packing import pack
from gimbal.environments.tools import AbstractTool
from gimbal.records import Drop, Episode
from gimbal.runtime.local import Trainer
from gimbal.workflows.base import AbstractWorkflow, Draw
from gimbal.workflows.dialogue import Dialogue


@dataclass(frozen=True, kw_only=True)
class NotTheFirst(Digits):
    def __call__(self, group):
        return [None, *super().__call__(group)[1:]]


@dataclass(frozen=True, kw_only=True)
class WithoutTheLast(AbstractFilter):
    def __call__(self, group):
        return group.keep(group.rollouts[:-1])


def test_rollouts_that_leave_a_group_are_counted(single_thread):
    trainer = Trainer(small_run(rewards=(NotTheFirst(),), filters=(WithoutTheLast(),)))
    metrics, groups, batch = trainer.advance()
    scored = trainer.pipeline.drops["rollouts/unscored"]
    assert scored > 0 and scored == trainer.pipeline.drops["rollouts/WithoutTheLast"]
    assert metrics["drops/rollouts/unscored"] == scored
    assert batch.shape[0] == len(groups) * (trainer.run.num_generations - 2)


def test_what_would_count_rows_is_refused_by_name(single_thread):
    trainer = Trainer(small_run(advantage=Stratified()))
    trainer.begin()
    groups, _ = trainer.pipeline.next_batch(0)
    double = [
        replace(g, episodes=tuple(Episode(rows=(e.last, replace(e.last, row=1))) for e in g.episodes)) for g in groups
    ]
    with pytest.raises(ValueError, match=r"^Stratified compares rows, .*GroupNormalized"):
        trainer.learner.prepare(pack(double))
    trainer.learner.prepare(pack(groups))
    trainer.close()


@dataclass(frozen=True, kw_only=True)
class Growing(AbstractBudgetSpec):
    """Each group seen so far gives the next one more rollout; lengths are half of what the run allows."""

    def start(self, rollouts, max_length):
        return GrowingBudget(rollouts, max_length)


class GrowingBudget(AbstractBudget):
    def __init__(self, rollouts, max_length):
        self.rollouts, self.max_length, self.seen = rollouts, max_length, 0

    def plan(self, tasks):
        return [Plan(rollouts=self.rollouts + self.seen, max_length=self.max_length // 2)] * len(tasks)

    def observe(self, group):
        self.seen += 1

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_a_budget_of_ones_own_says_how_many_and_how_long(single_thread):
    run = small_run(budget=Growing(), num_generations=2)
    trainer = Trainer(run)
    sizes = []
    for _ in range(2):
        metrics, groups, _ = trainer.advance()
        sizes.append([len(group.episodes) for group in groups])
        assert all(row.length <= 5 for group in groups for row in group.rows)
        assert metrics["samples/missing"] == 0
    assert sizes == [[2, 2], [4, 4]]
    resumed = Trainer(run)
    resumed.begin()
    resumed.pipeline.load_state_dict(trainer.pipeline.state_dict())
    assert resumed.pipeline.parts.budget.plan([groups[0].task])[0].rollouts == 6
    trainer.close()
    resumed.close()


STUCK = threading.Event()


@dataclass(frozen=True, kw_only=True)
class Ear(AbstractTool):
    """Never answers where the first number is a multiple of 4; the others at once."""

    triggers = ("1", "2", "3", "4", "5", "6", "7", "8", "9")

    def __call__(self, task, text):
        if deaf(task):
            STUCK.wait()
        return "0"


def deaf(task):
    return int(task.prompt.split(":")[1].split("+")[0]) % 4 == 0


@dataclass(frozen=True, kw_only=True)
class Pruned(AbstractWorkflow):
    """Gives up what has written no digit within four decisions."""

    def __call__(self, attempt):
        row = yield attempt.begin(most=4)
        if not any(c.isdigit() for c in row.text):
            return Drop("no_digit", drawn=row.length)
        return Episode.of((yield Draw(row=row)) if row.stop == "paused" else row)


def test_pruning_is_a_counted_drop(single_thread):
    trainer = Trainer(small_run(workflow=Pruned(), num_generations=8))
    pruned, trained = 0, 0
    for _ in range(3):
        metrics, groups, batch = trainer.advance()
        pruned, trained = metrics.get("drops/rollouts/no_digit", 0), trained + batch.shape[0]
        assert all(any(c.isdigit() for c in row.text) for group in groups for row in group.rows)
    assert (
        pruned > 0 and trained > 0 and not trainer.pipeline.drops.keys() - {"rollouts/no_digit", "no_digit", "too_few"}
    )
    assert trainer.pipeline.generated["decisions"] > sum(e.length for g in groups for e in g.episodes)
    trainer.close()


def test_a_tool_that_never_returns_is_reported_and_counted_and_the_run_goes_on(single_thread):
    notes = []
    flow = Dialogue(tool=Ear(), answers=2, deadline=0.05)
    trainer = Trainer(small_run(workflow=flow, num_generations=2), note=notes.append)
    try:
        for _ in range(3):
            metrics, groups, _ = trainer.advance()
            assert not any(deaf(group.task) and (~row.mask_S).any() for group in groups for row in group.rows)
    finally:
        STUCK.set()
        trainer.close()
    assert metrics["drops/rollouts/tool_timeout"] >= 1
    assert "tool Ear for task" in notes[0] and "turn 0 did not answer within 0.05 s" in notes[0]
