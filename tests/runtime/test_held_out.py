"""An evaluation of its own engine and rewards, for a run whose engine only copies."""

from dataclasses import replace

import pytest

from gimbal import api
from gimbal.environments.demonstrations import held_out_tasks
from gimbal.recipes.core.dpo import dpo
from gimbal.runtime.local import Trainer


def offline(**held_out):
    run = dpo()
    held_out = replace(run.held_out, tasks=held_out_tasks(size=2), samples=2, **held_out)
    return replace(run, held_out=held_out, sampling=replace(run.sampling, max_length=4), prompts_per_step=2, threads=1)


@pytest.mark.slow
def test_an_offline_run_is_evaluated_by_sampling():
    run = offline()
    trainer = Trainer(run)
    try:
        found = trainer.evaluate()
    finally:
        trainer.close()
    assert found.tasks == 2 and 0 < found.length <= 4 and found == api.evaluate(run)


def test_by_the_runs_own_engine_there_is_nothing_to_copy():
    with pytest.raises(ValueError, match="samples nothing"):
        api.evaluate(offline(engine=None))
