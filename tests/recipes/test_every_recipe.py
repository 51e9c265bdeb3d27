"""Every recipe, small: what defines it acts. Taken out, the weights are others, and the metric that shows it moves."""

import inspect
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from mechanisms import MECHANISMS
from parts import Mechanism, above, differs, of
from trials import Trials, hastened, small

from gimbal import recipes
from gimbal.objectives import ClippedRatio
from gimbal.ops import TokenMean
from gimbal.rewards import reasoning
from gimbal.runtime.compose import check
from gimbal.runtime.run import Run

DENOISING = recipes.of("denoising")
NEEDS = dict.fromkeys(("kuhn", "leduc", "tiny_leduc", "tiny_player"), "pyspiel")  # recipes of an extra
NEEDS |= dict.fromkeys(DENOISING, "diffusers") | {"spread": "mpe2"}


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


def rests(run: Run) -> bool:
    return any("the clip never acts" in warning for warning in check(run))


def prove(mechanism: Mechanism, run: Run, trials: Trials) -> None:
    run = replace(hastened(mechanism.start(run), mechanism.sooner), seed=mechanism.seed)
    with_it = trials(small(run, mechanism.prompts), mechanism.steps)
    metrics = with_it.metrics[: mechanism.steps]
    assert min(step["grad_norm"] for step in metrics) > 0
    clipped = [step[name] for step in metrics for name in ("clip_ratio/low", "clip_ratio/high") if name in step]
    assert not clipped or (max(clipped) > 0) != rests(run), (
        "a clip acts where the ratio is not always 1, and there only"
    )
    assert mechanism.parts, "a recipe is defined by something"
    for part in mechanism.parts:
        without = trials(small(part.without(run), mechanism.prompts), 1)
        step = with_it.parted(without, mechanism.steps, part.apart)
        assert step is not None, f"without {part.name} the weights are the same"
        assert part.moves(metrics, without.metrics, step), f"{part.name}: {part.metric} shows nothing of it"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(recipes.names()))
def test_what_defines_it_acts(name, trials):
    torch.set_num_threads(1)
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"{NEEDS[name]} is not installed")
    prove(MECHANISMS[name], recipes.function(name)(), trials)  # a new recipe says there what defines it


@pytest.mark.slow
def test_a_part_that_does_nothing_changes_no_bit_and_is_found_out(trials):
    """At one update a batch the ratio is 1, and no clip acts: two runs that differ in it are one, so the part is not said to act."""
    torch.set_num_threads(1)
    run = recipes.function("grpo")()
    wider = replace(run, objective=ClippedRatio(clip_low=0.1, clip_high=0.28))
    one, other = trials(small(run), 2), trials(small(wider), 2)
    assert all(torch.equal(mine, its) for mine, its in zip(one.weights[:3], other.weights[:3], strict=True))
    with pytest.raises(AssertionError, match="without objective the weights are the same"):
        prove(of("grpo", objective=above("clip_ratio/high")), wider, trials)
    # A part that acts, shown by a metric which stands still: that is found out too.
    with pytest.raises(AssertionError, match="aggregation: clip_ratio/high shows nothing of it"):
        prove(of("grpo", aggregation=above("clip_ratio/high")), replace(run, aggregation=TokenMean()), trials)
    with pytest.raises(AssertionError, match="aggregation: reward/mean shows nothing of it"):
        prove(of("grpo", aggregation=differs("reward/mean")), replace(run, aggregation=TokenMean()), trials)


def test_the_table_names_every_recipe_and_no_other():
    assert set(MECHANISMS) == set(recipes.names())


@pytest.mark.parametrize("name", sorted(recipes.names()))
def test_a_clip_that_never_acts_is_said_to_be_on_policy(name):
    function = recipes.function(name)
    said = "on-policy" in (inspect.getdoc(function) or "").lower()
    assert not rests(function()) or said, (
        "take several updates a batch as the paper does, or let the docstring say that it is on-policy"
    )
