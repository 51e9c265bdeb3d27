"""What an environment pays, as a reward: it decides what is solved, beside a reward of one's own."""

from dataclasses import replace

import pytest

from gimbal import recipes
from gimbal.config import Text
from gimbal.report.metrics import rollout_metrics
from gimbal.rewards.paid import Paid
from gimbal.runtime.local import Trainer


def brief(prompts, completions, **columns):
    return [-len(text) / 100 for text in completions]


@pytest.mark.parametrize("first", [True, False])
def test_the_environment_decides_where_it_comes_first(single_thread, first):
    pytest.importorskip("pydantic_monty")
    own = f"{__file__}:brief*0.1"
    typed = {"held_out": "none", "prompts_per_step": "4", "steps": "1", "reward": f"Paid(),{own}" if first else own}
    run = recipes.load("terminal", {key: Text(value) for key, value in typed.items()})
    assert isinstance(run.rewards[0], Paid) is first
    trainer = Trainer(replace(run, threads=1))
    try:
        trainer.begin()
        groups = trainer.advance()[1]
    finally:
        trainer.close()
    episodes = [episode for group in groups for episode in group.episodes]
    paid = [sum(float(row.reward_S.sum()) for row in episode.rows) for episode in episodes]
    assert 0 < sum(paid) < len(paid)
    told = rollout_metrics(groups)
    assert told["pass_rate"] == (pytest.approx(sum(paid) / len(paid)) if first else 0)
    assert told["reward/mean"] == pytest.approx(sum(paid) / len(paid) + 0.1 * told["reward/brief/mean"], abs=1e-6)
    assert not first or told["reward/paid/mean"] == pytest.approx(sum(paid) / len(paid))
