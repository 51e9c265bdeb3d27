"""The second family learns, through the same store, staleness rule, estimators and learner as the tokens.

The bars are the usual thresholds. The budgets of environment steps are those of published PPO results: CleanRL's ``ppo.py``
(CartPole-v1: 488.8 ± 18.4 after 500,000 steps) and RL Baselines3 Zoo (Pendulum-v1: -172 ± 104 after 100,000, one seed).
"""

from dataclasses import replace

import pytest

from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.recipes.papers.control.pendulum import pendulum
from gimbal.runtime.local import Trainer


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize(
    ("recipe", "bar", "budget"), [(cartpole, 475, 500_000), (pendulum, -250, 100_000)], ids=["cartpole", "pendulum"]
)
def test_recipe_reaches_its_threshold(recipe, bar, budget, seed):
    trainer = Trainer(replace(recipe(), seed=seed))
    ages = [trainer.advance()[0]["staleness/max"] for _ in range(trainer.run.steps)]
    exam = trainer.evaluate()
    assert exam.score >= bar and exam.greedy_score >= bar
    assert trainer.pipeline.generated["decisions"] <= budget
    assert max(ages) == 1
    trainer.close()
