"""The main job, shortened: int8 sampler, one version stale, and it learns."""

from dataclasses import replace

import pytest

from gimbal.environments.demonstrations import held_out_tasks
from gimbal.recipes.core.demo import demo
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut


@pytest.mark.slow
def test_twelve_steps_of_the_demo_learn():
    run = replace(demo(), threads=1, steps=12, held_out=HeldOut(tasks=held_out_tasks(size=64), samples=4))
    trainer = Trainer(run)
    try:
        before = trainer.evaluate()
        rows = [trainer.advance()[0] for _ in range(12)]
        after = trainer.evaluate()
    finally:
        trainer.close()
    assert before.pass_at[1] <= 0.45
    assert after.pass_at[1] >= before.pass_at[1] + 0.15 and after.greedy >= before.greedy + 0.15
    assert max(row["staleness/max"] for row in rows) == 1
    assert all(row["mismatch/prob_diff"] > 0 for row in rows)
