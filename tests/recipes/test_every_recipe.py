"""Every recipe, small: what defines it acts. Taken out, the weights are others, and the metric that shows it moves."""

import inspect
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from mechanisms import MECHANISMS, PENDING
from trials import Trials, hastened, small

from gimbal import recipes
from gimbal.rewards import reasoning
from gimbal.runtime.compose import check


class Scorer:
    """One scoring process for all rewards of all recipes: the library that scores takes a second to import."""

    def __init__(self, make_worker):
        self._make, self.worker = make_worker, None

    def __call__(self, *words, **options):
        if self.worker is None:
            self.worker = self._make(*words, **options)
        return self.worker


@pytest.fixture(scope="module")
def trials():
    scorer, kept = Scorer(reasoning.Worker), Trials()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reasoning, "Worker", scorer)
        patch.setattr(reasoning.ReasoningScore, "close", lambda reward: None)
        yield kept
        kept.close()
    if scorer.worker is not None:
        scorer.worker.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=PENDING.get(name, ())) for name in sorted(recipes.names())])
def test_what_defines_it_acts(name, trials):
    torch.set_num_threads(1)
    mechanism = MECHANISMS[name]  # a new recipe says there what defines it
    run = hastened(mechanism.start(recipes.function(name)()), mechanism.sooner)
    with_it = trials(small(run, mechanism.prompts), mechanism.steps)
    assert min(step["grad_norm"] for step in with_it.metrics[: mechanism.steps]) > 0
    assert mechanism.parts, "a recipe is defined by something"
    for part in mechanism.parts:
        without = trials(small(part.without(run), mechanism.prompts), 1)
        step = with_it.parted(without, mechanism.steps, part.apart)
        assert step is not None, f"without {part.name} the weights are the same"
        assert part.moves(with_it, without, step), f"{part.name}: {part.metric} shows nothing of it"


def test_the_table_names_no_recipe_that_is_not_there():
    assert set(MECHANISMS) <= set(recipes.names())


@pytest.mark.parametrize("name", [pytest.param(name, marks=PENDING.get(name, ())) for name in sorted(recipes.names())])
def test_a_clip_that_never_acts_is_said_to_be_on_policy(name):
    function = recipes.function(name)
    rests = any("no clip ever acts" in warning for warning in check(function()))
    said = "on-policy" in (inspect.getdoc(function) or "").lower()
    assert not rests or said, (
        "take several updates a batch as the paper does, or let the docstring say that it is on-policy"
    )
