"""What leaves the dataflow is counted: rollouts that no reward applies to, and rollouts that a filter takes out."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, small_run

from gimbal.advantages import Stratified
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, AbstractFilter, Plan
from gimbal.dataflow.packing import pack
from gimbal.records import Episode
from gimbal.runtime.local import Trainer


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

    def plan(self, task):
        return Plan(rollouts=self.rollouts + self.seen, max_length=self.max_length // 2)

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
    resumed.pipeline.load_state_dict(trainer.pipeline.state_dict())
    assert resumed.pipeline.parts.budget.plan(groups[0].task).rollouts == 6
    trainer.close()
    resumed.close()
