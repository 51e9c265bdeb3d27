"""Models that are evaluated or served by themselves: those in the package, and directories."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gimbal import recipes
from gimbal.policies import diffusers, loading
from gimbal.runtime.run import AbstractRun

# The models in the package, each with a recipe that evaluates it.
SHIPPED = dict.fromkeys(loading.SHIPPED, "demo")
SHIPPED |= {
    loading.MASKED: "masked_grpo",
    loading.SCALES: "next_scale",
    loading.ROUTES: "reflect_drive",
    diffusers.DIGITS: "flow_grpo",
    diffusers.DIFFUSED: "ddpo",
}
# A model's directory, of transformers or diffusers, has one of these files.
MODELS = ("config.json", diffusers.INDEX, *(f"{place}/config.json" for place in diffusers.NETWORKS))


def is_model(target: str) -> bool:
    return target in SHIPPED or any((Path(target) / file).is_file() for file in MODELS)


def of_model(target: str, recipe: str) -> AbstractRun:
    """The recipe with this model. ValueError for one in the package that is of another kind."""
    run = recipes.load(recipe)
    policy = run.policy.at(Path(target))
    if target in SHIPPED and target not in policy.shipped:
        raise ValueError(
            f"{target} is not a model that {recipe} can load, whose policy is {type(policy).__name__}: give "
            f"--recipe {SHIPPED[target]}, or another of its kind"
        )
    return replace(run, policy=policy)
