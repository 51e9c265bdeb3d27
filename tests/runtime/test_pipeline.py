"""What leaves the dataflow is counted: rollouts that no reward applies to, and rollouts that a filter takes out."""

import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from small import Digits, small_run

from gimbal.dataflow.base import AbstractFilter
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
