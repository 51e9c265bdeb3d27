"""Makes an environment with gymnasium's interface by its name.

Nothing here imports torch, which is five sixths of the start of a process that only steps an environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gimbal.config.classes import nearest
from gimbal.config.parts import broken, imported, resolve
from gimbal.environments.attributes import adjust, split
from gimbal.environments.parallel import found_parallel, is_parallel, made_parallel

# By their names, as these files need what this one makes.
LEARNED_WORLD, AGENTS = "gimbal.environments.learned_world", "gimbal.environments.agents"
# In the info of a step: whether its goal is reached, and what it cost (apart from the reward), where an environment says so; and, where
# an episode ends, what the next one begins with, of an environment that goes on by itself.
READ = SUCCESS, COST, BEGINS = "is_success", "cost", "begins"
# Environments of gymnasium whose episodes depend on those before them, though their seeds do not: Box2D's world outlives its bodies.
REMEMBER = ("gymnasium.envs.box2d.bipedal_walker",)


def anew(env: Any, again: Callable[[], Any]) -> Any:
    """What is to be reset for one more episode: the same, or another where its episodes depend on those before."""
    if type(env.unwrapped).__module__ not in REMEMBER:
        return env
    env.close()
    return again()


def opened(source: str, **settings: Any) -> Any:
    """The environment of this name, or of a user's class, with the attributes that the name sets; it is made with these settings."""
    plain, values = split(source)
    env = made(plain, settings, values)
    if is_parallel(env):
        return resolve(f"{AGENTS}:together")(source, env)
    adjust(env, values, source)
    return env


def world_of(source: str) -> tuple[str, str] | None:
    """(The directory of a learned world, the recorded episodes in which it begins) where this name is one: DIRECTORY:DATASET."""
    place, _, name = source.rpartition(":")
    saved = Path(place).expanduser()
    there = bool(place) and saved.is_dir() and ("/" in place or (saved / "config.json").is_file())
    return (str(saved), name) if there else None


def made(source: str, settings: Mapping[str, Any], values: Mapping[str, float]) -> Any:
    """The environment of this name, or of a user's class: what a module of his registers as it is imported has a name too. ``values``
    are settings of one of several agents."""
    import gymnasium

    if (world := world_of(source)) is not None:
        return resolve(f"{LEARNED_WORLD}:LearnedWorld")(*world)
    place, _, name = source.rpartition(":")
    if "/" in place and not place.endswith(".py"):
        raise ValueError(
            f"{source}: there is no directory {place}, in which a run saved a world (a file of yours is file.py:Class)"
        )
    if not place and name not in gymnasium.registry and (of_agents := found_parallel(name)) is not None:
        return made_parallel(of_agents, source, settings, values)
    there = vars(imported(place, source)) if place else {}
    own = there.get(name)
    known = (key for key in gymnasium.registry if key == name or key.startswith(f"{name}-v"))
    if own is None and place and name.isidentifier() and not any(known):
        raise ValueError(
            f"{place} has no class {name}, and registers no environment of that name{nearest(name, there)}"
        )
    if own is None:
        try:
            return gymnasium.make(name, disable_env_checker=True, **settings)
        except (gymnasium.error.Error, ImportError) as error:
            why = str(error).partition(" Did you mean")[0].rstrip(". ")
            if name in gymnasium.registry:  # something that it needs is missing
                raise ValueError(f"gymnasium does not make {source!r}: {why}") from error
            raise ValueError(
                f"gymnasium does not make {source!r}: {why}{nearest(name, gymnasium.registry)} (one of your own is file.py:Class, "
                "without a version, or module:Name-v0, which the module registers; one of PettingZoo is its module, as in "
                "mpe2.simple_spread_v3)"
            ) from error
    try:
        found = own(**settings)
    except Exception as error:  # whatever a user's class raises, told with the line of his file
        raise broken(source, error) from error
    if is_parallel(found):
        return made_parallel(own, source, settings, values) if values else found
    if not isinstance(found, gymnasium.Env):
        raise ValueError(
            f"{source} makes a {type(found).__name__}; a gymnasium.Env is wanted, with observation_space, action_space, reset and "
            "step, or a pettingzoo.ParallelEnv"
        )
    return found


def spaces_of(env: Any, source: str) -> tuple[Any, Any]:
    """What it shows and what it takes."""
    try:
        found = env.observation_space, env.action_space
    except AttributeError as error:
        raise ValueError(f"{source} has no {error.name}; set it in the class or in its __init__") from error
    import gymnasium  # late: it is an extra

    for name, space in zip(("observation_space", "action_space"), found, strict=True):
        if not isinstance(space, gymnasium.Space) or 0 in (space.shape or ()):
            raise ValueError(
                f"{source} has the {name} {space!s:.80}, which holds no number; set a gymnasium space in the class or in its __init__"
            )
    return found
