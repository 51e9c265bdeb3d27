"""What leaves the dataflow is counted: rollouts that no reward applies to, and rollouts that a filter takes out."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, small_run

from gimbal.advantages import Stratified
from gimbal.dataflow.base import AbstractFilter
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
