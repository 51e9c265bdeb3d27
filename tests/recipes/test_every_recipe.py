"""Every recipe takes two steps, at a small size: the parts fit, the metrics are finite, and what it promises is kept."""

import math
from dataclasses import replace

import pytest

from gimbal import recipes
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.compose import check
from gimbal.runtime.local import Trainer


@pytest.fixture(scope="module")
def shared():
    """One scoring process for all recipes: the library that scores takes a second to import."""
    kept, close = {}, ReasoningScore.close
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReasoningScore, "close", lambda reward: None)
        yield lambda reward: kept.setdefault(reward, reward) if isinstance(reward, ReasoningScore) else reward
    for reward in kept:
        close(reward)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(recipes.names()))
def test_two_steps(name, shared):
    run = recipes.function(name)()
    assert check(run) == [] or all(isinstance(warning, str) for warning in check(run))
    small = replace(
        run,
        rewards=tuple(shared(reward) for reward in run.rewards),
        prompts_per_step=2,
        num_generations=min(4, run.num_generations),
        sampling=replace(run.sampling, max_length=12),
        threads=1,
        steps=2,
        filters=(),
    )
    trainer = Trainer(small)
    try:
        for _ in range(2):
            metrics, _, batch = trainer.advance()
            unknown = {name for name, value in metrics.items() if not math.isfinite(value)}
            assert unknown <= {"kept_frac"}, metrics  # no group may have finished since the last step
            assert metrics["staleness/max"] <= run.max_staleness
            assert batch.mask_NS.any()
    finally:
        trainer.close()
