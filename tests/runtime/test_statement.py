"""What is said of a run before it starts."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from small import small_run

from gimbal import recipes
from gimbal.config.parts import Text
from gimbal.dataflow.budgets.deepened import Deepened
from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.dataflow.curricula.banded import Banded
from gimbal.dataflow.filters.first_of import FirstOf
from gimbal.dataflow.filters.zero_variance import ZeroVariance
from gimbal.dataflow.replay.recent import Recent
from gimbal.engines.drafting.prompt_lookup import PromptLookup
from gimbal.engines.native import Native
from gimbal.environments.dataset import Rows
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.mixture import Mixed
from gimbal.environments.split import Split
from gimbal.policies.token import Sampling
from gimbal.runtime.run import HeldOut
from gimbal.runtime.statement import statement
from gimbal.workflows.plan_and_execute import PlanAndExecute

SIZED = Rows(rows=[{"prompt": str(number), "num_generations": 2 + number} for number in range(4)])


@pytest.mark.parametrize(
    ("changes", "beginning"),
    [
        (
            {},
            "5 steps, each of 2 prompts x 4 rollouts = 8 rollouts (at most 80 tokens) and 1 update; trained on decisions",
        ),
        ({"prompts_per_step": 1}, "5 steps, each of 4 rollouts of one prompt (at most 40 tokens) and"),
        ({"num_generations": 1}, "5 steps, each of 2 rollouts (at most 20 tokens) and"),
        (
            {"num_generations": 1, "prompts_per_step": 1, "sampling": Sampling(max_length=1), "steps": 1},
            "1 step, each of 1 rollout (at most 1 token) and 1 update; trained on decisions of the current version;",
        ),
        ({"steps": 0}, "0 steps: nothing is trained; seed 0."),
        (
            {"steps": 0, "held_out": HeldOut(tasks=training_tasks(size=4))},
            "0 steps: nothing is trained, only evaluated;",
        ),
    ],
)
def test_one_is_singular_and_nothing_is_called_nothing(changes, beginning):
    assert statement(replace(small_run(), **changes)).startswith(beginning)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"budget": Deepened()},
            "each of 2 prompts (how many rollouts is up to the budget Deepened; num_generations is 4)",
        ),
        (
            {"budget": UntilMixed(first=2)},
            "each of 2 prompts x 4 rollouts = at most 8 rollouts (at most 80 tokens) and",
        ),
        (
            {"tasks": SIZED},
            "each of 2 prompts (how many rollouts is up to each task's num_generations; num_generations is 4)",
        ),
        (
            {"tasks": Mixed(sets=(Split(tasks=SIZED, side="train", held_out=1.0),))},
            "up to each task's num_generations;",
        ),
        (
            {"workflow": PlanAndExecute()},
            "each of 2 prompts x 4 rollouts = 8 rollouts (at most 10 tokens a row) and",
        ),
        (
            {"curriculum": Banded(), "store": Recent(), "filters": (ZeroVariance(), FirstOf(count=2))},
            "; curriculum=Banded store=Recent filters=ZeroVariance,FirstOf; seed",
        ),
        (
            {"budget": UntilMixed(), "engine": Native(drafter=PromptLookup())},
            "; budget=UntilMixed drafter=PromptLookup; s",
        ),
    ],
)
def test_only_what_holds_is_said_and_what_was_chosen_is_named(changes, said):
    assert said in (whole := statement(replace(small_run(), **changes))) and ("at most" in whole) == (
        "up to" not in said
    )


@pytest.mark.parametrize("name", ["dpo", "bc"])
def test_recorded_data_has_no_version(name):
    said = statement(recipes.load(name))
    assert "trained on recorded data; seed 0." in said and "version" not in said and "sampler" not in said


@pytest.mark.parametrize(
    ("recipe", "name", "said"),
    [
        ("cartpole", "Walks", "16 rollouts (at most 8,000 env steps, 24,000 decisions of 3 agents) and"),
        ("cartpole", "Walks@together=1", "16 rollouts (at most 8,000 env steps) and"),
        ("cartpole", "One", "16 rollouts (at most 8,000 env steps) and"),
        ("dqn", "Walks", "0.25 updates for each decision of an agent after the first 1,000"),
    ],
)
def test_steps_of_an_environment_are_told_apart_from_the_decisions_of_its_agents(recipe, name, said):
    environment = Path(__file__).parent.parent / "environments" / f"several_agents.py:{name}"
    assert said in statement(recipes.load(recipe, {"environment": Text(str(environment))}))
