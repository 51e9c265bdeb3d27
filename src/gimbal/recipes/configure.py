"""From the words of a command line, a file or Python to a checked run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gimbal.config import override, paths
from gimbal.critics.mlp import ValueMLP
from gimbal.critics.tokens import HiddenValue
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.reasoning import ReasoningGym
from gimbal.learning.updates.soft_actor_critic import SoftActorCritic
from gimbal.policies.categorical import Categorical
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.policies.token import CausalLM
from gimbal.runtime import compose
from gimbal.runtime.run import AbstractRun, Run

_NAMES = {"reward": "rewards", "reward_funcs": "rewards", "train_dataset": "tasks", "dataset": "tasks"}


def configured(run: AbstractRun, overrides: Mapping[str, Any], notice: Callable[[str], None]) -> AbstractRun:
    """The run with these overrides, checked as a whole: two parts that consume the same ratio are refused here.

    ``reward`` is another name of ``rewards``. What functions, references and files stand for is read in ``config/parts.py`` (SHORT).
    """
    changes: dict[str, Any] = {}
    for key, value in overrides.items():
        ours = _NAMES.get(key, key)
        if ours in changes:
            raise ValueError(f"{key} sets {ours}, which is given already; give one of them")
        changes[ours] = value
    if "tasks" in changes and run.held_out is not None and not _examined(changes):
        if of_exam := [key for key in changes if key.startswith("held_out.")]:
            raise ValueError(
                f"{of_exam[0]} is of the recipe's evaluation, which is on its own tasks and not on yours; add held_out.tasks=FILE.jsonl"
            )
        changes["held_out"] = None
        notice("no held-out evaluation: the recipe evaluates on its own tasks, not yours; add held_out=FILE.jsonl")
    recipe, run = run, override(run, changes, notice)
    run = _wide(_fitted(recipe, _apart(recipe, run, changes), changes), changes)
    compose.check(run)
    return run


def _examined(changes: Mapping[str, Any]) -> bool:
    """Whether the user says on which tasks is evaluated, or that none is."""
    return any(key == "held_out" or f"{key}.".startswith("held_out.tasks.") for key in changes)


def _apart(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """Where the evaluation was changed, training leaves the new evaluation's questions out, as it did the old one's."""
    exam = run.held_out.tasks if run.held_out is not None else None
    before = recipe.held_out.tasks if recipe.held_out is not None else None
    if exam == before or not isinstance(run.tasks, ReasoningGym) or not isinstance(exam, ReasoningGym):
        return run
    if any(key.startswith("tasks.exclude") for key in changes):
        return run
    return replace(run, tasks=replace(run.tasks, exclude=replace(exam, exclude=None)))


def _wide(run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """A critic on the policy's hidden states takes as many numbers as these have, unless the user says how many."""
    policy = run.policy
    if not isinstance(policy, CausalLM) or policy.width is None:
        return run
    sizes = {f"{path}.width": policy.width for path, part in paths(run).items() if isinstance(part, HiddenValue)}
    return override(run, {path: size for path, size in sizes.items() if not {path, "width"} & set(changes)})


def _fitted(recipe: AbstractRun, run: AbstractRun, changes: Mapping[str, Any]) -> AbstractRun:
    """In another environment policy and critic have its sizes and bound, and the evaluation is of it; what the user sets stays."""
    before = recipe.tasks.source if isinstance(recipe.tasks, Gymnasium) else ""
    if not isinstance(run.tasks, Gymnasium) or run.tasks.source == before:
        return run
    world = Environment(run.tasks.source)
    sizes: dict[str, Any] = {}
    both = {"observations": world.observations, "actions": world.actions}
    if isinstance(run.policy, Gaussian | SquashedGaussian if world.real else Categorical):
        sizes |= {f"policy.{name}": size for name, size in both.items()}
    if isinstance(run.policy, SquashedGaussian):
        sizes["policy.bound"] = world.bound
    if isinstance(run.learns, SoftActorCritic):
        sizes |= {f"update.critic.{name}": size for name, size in {**both, "bound": world.bound}.items()}
    if isinstance(run, Run) and isinstance(run.critic, ValueMLP):
        sizes["critic.observations"] = world.observations
    if run.held_out is not None and isinstance(run.held_out.tasks, Gymnasium):
        sizes["held_out.tasks.environment"] = run.tasks.source

    def given(path: str) -> bool:
        short = "" if path.startswith("held_out.") else path.rpartition(".")[2]  # a short name means what is trained on
        return any(key in (path, short) or path.startswith(key + ".") for key in changes)

    return override(run, {path: value for path, value in sizes.items() if not given(path)})
