"""Environments of several agents that act at once, by the names of their modules: PettingZoo's parallel ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gimbal.config.parts import broken, imported

TOGETHER = "together"  # behind the @: 1 for one decision of all agents at once


def is_parallel(env: Any) -> bool:
    """Whether it has the interface of pettingzoo.ParallelEnv, whatever its class: of gymnasium's no space is asked for by name."""
    return hasattr(env, "possible_agents") and callable(env.observation_space) and callable(env.action_space)


def found_parallel(name: str) -> Callable[..., Any] | None:
    """What makes the environment of this module (``mpe2.simple_spread_v3``); None where there is no such module."""
    if "." not in name or not name.replace(".", "_").isidentifier():
        return None
    try:
        module = imported(name, name)
    except ValueError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            return None
        raise
    if "parallel_env" not in vars(module):
        raise ValueError(
            f"{name} has no parallel_env, which makes PettingZoo's environments whose agents act at once; those that take turns are "
            "not supported"
        )
    return vars(module)["parallel_env"]


def made_parallel(
    make: Callable[..., Any], source: str, settings: Mapping[str, Any], values: Mapping[str, float]
) -> Any:
    """The environment by its own arguments: the numbers behind the @, whole ones as integers (1 and 0 do for a yes or no)."""
    if (all_at_once := values.get(TOGETHER, 0)) not in (0, 1):
        raise ValueError(
            f"{source} sets {TOGETHER}={all_at_once:g}; it is 1 (one decision of all agents) or 0 (each decides for itself)"
        )
    given = {name: int(value) if value.is_integer() else value for name, value in values.items() if name != TOGETHER}
    try:
        return make(**settings, **given)
    except Exception as error:  # whatever another's code raises, an argument that it does not have among it
        raise broken(source, error) from error
