"""gimbal record: record episodes of policies as a dataset for training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gimbal.environments.recording import Recording

HELP = """\
gimbal record SOURCE [SOURCE ...] DIRECTORY

Writes episodes to DIRECTORY in Minari's layout, for gimbal train iql tasks=DIRECTORY and for any tool that reads Minari. A SOURCE
is a run, whose policy acts in its training environment (tasks.environment, without the variants of a grid), or a dataset
(gimbal/pendulum/random-v0, a directory). Episodes of several sources are mixed evenly. An episode in which the environment fails is
left out, counted, and replaced by another.

  --episodes N       episodes per run (default: 100)
  --seed N           seed of the episodes and actions (default: 0)
  --temperature T    sampling temperature of the actions: 1 as trained, 0 the policy's mode (default: 1)
  --step N           use this checkpoint's policy instead of the last, for worse episodes
  --runs DIRECTORY   look up run names there instead of in runs"""


def record(argv: Sequence[str]) -> int:
    from gimbal.cli.words import parse

    arguments = parse(argv, ("help",), ("episodes", "seed", "temperature", "step", "runs"))
    if "help" in arguments.flags:
        print(HELP)
        return 0
    if arguments.overrides:
        raise ValueError(f"gimbal record takes no key {next(iter(arguments.overrides))} (gimbal record --help)")
    if len(arguments.words) < 2:
        raise ValueError("gimbal record takes runs or datasets, and a new directory: gimbal record RUN DIRECTORY")
    import numpy as np

    from gimbal import durable
    from gimbal.environments.recording import joined, write

    *sources, target = arguments.words
    place = Path(target)
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise ValueError(f"{place} already exists and is not empty; give a new directory")
    found = joined([_episodes(source, arguments.flags) for source in sources])
    with durable.named(place):
        write(found, place, place.name)
    returns = np.array(found.returns())
    print(
        f"{place}: {len(found.episodes)} episodes, {found.steps} steps of {found.source}; returns {returns.mean():.4g} on average, "
        f"{returns.min():.4g} to {returns.max():.4g}"
    )
    if found.left_out:
        print(
            f"{len(found.left_out)} more broke and are left out (environment_error), so the data have none of what led there; "
            f"the first: {found.left_out[0]}"
        )
    return 0


def _episodes(source: str, flags: dict[str, str]) -> Recording:
    from gimbal import config
    from gimbal.cli.export import chosen
    from gimbal.environments import minari
    from gimbal.environments.behaviors import MADE
    from gimbal.environments.recording import located
    from gimbal.runtime.directories import RUNS, find_run
    from gimbal.runtime.playing import recorded
    from gimbal.runtime.run import AbstractRun

    if source in MADE or located(Path(source).expanduser()) is not None:
        return minari.recording(source)
    directory = find_run(source, Path(flags.get("runs", RUNS)))
    _, run = config.load(directory, AbstractRun)
    model, _ = chosen(directory, flags.get("step"), False)
    numbers = {name: _number(flags, name, least) for name, least in (("episodes", 1), ("seed", 0), ("temperature", 0))}
    policy = run.policy.at(model).load(run.seed)
    return recorded(
        run, policy, episodes=int(numbers["episodes"]), seed=int(numbers["seed"]), temperature=numbers["temperature"]
    )


DEFAULTS = {"episodes": "100", "seed": "0", "temperature": "1"}


def _number(flags: dict[str, str], name: str, least: int) -> int | float:
    given = flags.get(name, DEFAULTS[name])
    try:
        value = float(given) if name == "temperature" else int(given)
    except ValueError:
        value = -1
    if not least <= value < 1e9:
        raise ValueError(f"--{name} is {given}; it must be a number, {least} or above")
    return value
