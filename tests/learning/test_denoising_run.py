"""A denoising run: first ratios of 1, evaluations under both samplers, measures beside the reward."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal import recipes
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.recent import Recent
from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.learning.proximal.behavior import Behavior
from gimbal.learning.weight_sync.receipts import NotDelivered
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import HeldOut
from gimbal.workflows.fixed_splits import FixedSplits
from gimbal.workflows.single import SingleTurn


@pytest.mark.slow
@pytest.mark.parametrize("workflow", [SingleTurn(), FixedSplits(splits=(1, 2))], ids=lambda one: type(one).__name__)
def test_in_float32_nothing_lies_between_sampler_and_trainer_and_both_samplers_are_evaluated(workflow):
    torch.set_num_threads(1)
    run = recipes.function("flow_grpo")()
    run = replace(
        run,
        engine=Denoising(slots=8, precision="float32"),
        workflow=workflow,
        max_staleness=0,
        ahead="ready",
        prompts_per_step=2,
        num_generations=4,
        sampling=replace(run.sampling, max_length=5, reduce="sum"),
        optimization=replace(run.optimization, minibatches=1),
        held_out=HeldOut(tasks=Conditions(seed=2, size=6), samples=1, workflow=SingleTurn()),
    )
    trainer = Trainer(run)
    for _ in range(2):
        metrics, _, batch = trainer.advance()
        assert metrics["mismatch/logp_diff_max"] == 0.0 and metrics["kl/old"] == 0.0, "every ratio is exactly 1"
        assert torch.equal(batch.proximal_NS, batch.behavior_NS) and batch.behavior_NS.any()
    assert {"reward/data/distance", "reward/data/coverage", "reward/log_p/mean"} <= metrics.keys()
    found = trainer.evaluate().metrics()
    assert found["eval/data/distance"] != found["eval/greedy_data/distance"], "one by the SDE, one by the ODE"
    assert {"eval/pass@1", "eval/greedy", "eval/greedy_data/coverage"} <= found.keys()
    trainer.close()


def small(**changes):
    run = recipes.function("flow_grpo")()
    small = {
        "engine": Denoising(slots=8, precision="float32"),
        "prompts_per_step": 2,
        "num_generations": 4,
        "sampling": replace(run.sampling, max_length=4),
        "held_out": None,
    }
    return replace(run, **{**small, **changes})


@pytest.mark.slow
def test_a_sampler_with_another_guidance_than_the_trainers_is_stopped_before_the_first_step(monkeypatch):
    start = Denoising.start

    def guided(spec, policy):
        engine = start(spec, policy)
        engine._policy.guidance = 3.0
        return engine

    asked = small(tasks=Conditions(labels=(4,), seed=1))
    well = Trainer(asked)
    well.begin()
    well.close()
    monkeypatch.setattr(Denoising, "start", guided)
    trainer = Trainer(asked)
    with pytest.raises(NotDelivered):
        trainer.begin()
    trainer.close()


@pytest.mark.slow
def test_old_paths_train_again_from_a_replay_store():
    """With ratios to their own sampler, as texts do."""
    last = []
    for store in (Once(), Recent(share=0.5, window=2)):
        trainer = Trainer(small(store=store, anchor=Behavior()))
        for _ in range(3):
            metrics, _, batch = trainer.advance()
        last.append((len(batch.mask_NS), metrics["staleness/max"]))
        trainer.close()
    (fresh, age), (more, older) = last
    assert fresh == 8 and more > fresh and older > age
