"""Recorded episodes of control, in memory and in the layout of Minari: ``main_data.hdf5`` and ``metadata.json``.

    episode_0/observations  [S + 1, ...]   one more than there are actions: the last is what was seen after the last of them
             /actions, rewards, terminations, truncations   [S, ...]
             /infos/cost    [S + 1]   where the environment tells it: what it costs to be where each observation was made

Spaces that are no plain vector (Dict, Tuple, Discrete ...) are groups of such arrays, and read as one vector, as they are shown when
a policy acts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from gimbal.environments.gym import COST, Environment

DATA, METADATA = "main_data.hdf5", "metadata.json"
LAYOUT = "0.5.0"  # of Minari, that others are told: readers of 0.4 and 0.5 take it
COLUMNS = ("observations", "actions", "rewards", "terminations", "truncations")


@dataclass(frozen=True, kw_only=True)
class RecordedEpisode:
    """S steps. ``terminated``: the environment ended it; else it was cut off, and there would have been more to be had.
    ``cost_S``: what ``info["cost"]`` said with each observation, above 0 where a constraint is violated; None where nothing was said.
    """

    reward_S: Float[np.ndarray, " S"]
    action_SA: Shaped[np.ndarray, "S A"]  # reals, or one number of a choice
    observation_SO: Float[np.ndarray, "S+1 O"]  # before each action, and after the last
    terminated: bool
    seed: int | None = None
    cost_S: Float[np.ndarray, " S+1"] | None = None

    @property
    def length(self) -> int:
        return len(self.reward_S)


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Episodes of one environment. ``source`` is where that is found again (``Gymnasium.environment``), "" if nobody said."""

    source: str
    episodes: tuple[RecordedEpisode, ...]
    choices: int = 0  # that there are; 0 where an action is a vector of reals
    left_out: tuple[str, ...] = ()  # why episodes that were played are not here, one reason each

    @property
    def observations(self) -> int:
        return self.episodes[0].observation_SO.shape[1]

    @property
    def interface(self) -> str:
        """What it shows and takes, in the words of ``Environment.interface``."""
        does = f"{self.choices} choices" if self.choices else f"{self.episodes[0].action_SA.shape[1]} real actions"
        return f"{self.observations} observations, {does}"

    @property
    def costs(self) -> bool:
        """Whether every episode tells its costs."""
        return not self.without_costs

    @property
    def without_costs(self) -> list[int]:
        """The episodes that tell none."""
        return [n for n, episode in enumerate(self.episodes) if episode.cost_S is None]

    @property
    def violations(self) -> int:
        """How many observations a constraint is violated at."""
        return sum(int((episode.cost_S > 0).sum()) for episode in self.episodes if episode.cost_S is not None)

    @property
    def steps(self) -> int:
        return sum(episode.length for episode in self.episodes)

    def returns(self) -> list[float]:
        return [float(episode.reward_S.sum()) for episode in self.episodes]


def located(directory: Path) -> Path | None:
    """Where the two files are: in a directory of Minari's, or in its ``data``."""
    return next((place for place in (directory, directory / "data") if (place / DATA).is_file()), None)


def read(place: Path) -> Recording:
    """The episodes in a directory, or ValueError that says what is wrong with them."""
    import h5py  # late: it is an extra

    metadata = _metadata(place)
    try:
        with h5py.File(place / DATA, "r") as file:
            names = sorted((name for name in file if name.startswith("episode_")), key=lambda name: int(name[8:]))
            if not names:
                raise ValueError(f"{place / DATA} holds no episodes (groups episode_0, episode_1, ...)")
            episodes = tuple(_episode(file[name], metadata, f"{place / DATA}, {name}") for name in names)
    except OSError as error:
        raise ValueError(f"{place / DATA} cannot be read: {' '.join(str(error).split())}; record it again") from error
    shapes = {(e.observation_SO.shape[1], e.action_SA.shape[1]) for e in episodes}
    if len(shapes) > 1:
        sizes = ", ".join(f"{seen} and {done}" for seen, done in sorted(shapes))
        raise ValueError(
            f"{place / DATA} has episodes of several sizes (observation and action: {sizes}): keep those of one environment"
        )
    space = metadata["action_space"]
    choices = int(space["n"]) if space.get("type") == "Discrete" else 0
    if choices and (
        wrong := [n for n, e in enumerate(episodes) if not 0 <= e.action_SA.min() <= e.action_SA.max() < choices]
    ):
        raise ValueError(f"{place / DATA}, {names[wrong[0]]} has actions beyond the {choices} choices of its space")
    return Recording(source=metadata["source"], episodes=episodes, choices=choices)


def source_of(place: Path) -> str:
    """The environment that a directory's metadata name."""
    return _metadata(place)["source"]


def _metadata(place: Path) -> dict[str, Any]:
    """Spaces and the environment's name. Older data have no spaces: arrays speak for themselves then."""
    path = place / METADATA
    try:
        found = json.loads(path.read_text())
        spec = json.loads(found.get("env_spec") or "{}")
        spaces = {name: json.loads(found.get(name) or "{}") for name in ("observation_space", "action_space")}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not what Minari writes beside its episodes: {error}") from error
    if found.get("data_format", "hdf5") != "hdf5":
        raise ValueError(f"{path} says that the data are {found['data_format']}; hdf5 is read: convert them by Minari")
    return {"source": str(spec.get("id") or ""), **spaces}


def _episode(group: Any, metadata: Mapping[str, Any], where: str) -> RecordedEpisode:
    if missing := [name for name in COLUMNS if name not in group]:
        raise ValueError(f"{where} has no {missing[0]}; an episode of Minari has {', '.join(COLUMNS)}")
    observation_SO = np.concatenate(_flat(group["observations"], metadata["observation_space"], where), 1)
    observation_SO = observation_SO.astype(np.float32)
    space = metadata["action_space"]
    if space.get("type") == "Discrete":
        action_SA = np.asarray(group["actions"])[:, None].astype(np.int64) - int(space.get("start", 0))
    else:
        action_SA = np.concatenate(_flat(group["actions"], space, where), 1).astype(np.float32)
    reward_S = np.asarray(group["rewards"]).reshape(-1).astype(np.float32)
    ended_S, cut_S = (np.asarray(group[name]).reshape(-1).astype(bool) for name in ("terminations", "truncations"))
    steps = len(reward_S)
    cost_S = None
    if (told := group.get(f"infos/{COST}")) is not None:
        cost_S = np.asarray(told).reshape(-1).astype(np.float32)
    wanted = {"observations": steps + 1, "actions": steps, "terminations": steps, "truncations": steps}
    counts = (len(observation_SO), len(action_SA), len(ended_S), len(cut_S))
    if cost_S is not None:
        wanted, counts = {**wanted, f"infos/{COST}": steps + 1}, (*counts, len(cost_S))
    for (name, count), found in zip(wanted.items(), counts, strict=True):
        if found != count:
            raise ValueError(f"{where} has {steps} rewards and {found} {name}, where {count} belong: record it again")
    if not steps:
        raise ValueError(f"{where} has no steps: leave it out")
    numbers = {"observations": observation_SO, "actions": action_SA, "rewards": reward_S, f"infos/{COST}": cost_S}
    for name, values in numbers.items():
        if values is not None and not np.isfinite(values).all():
            raise ValueError(f"{where} has {name} that are NaN or infinite: leave this episode out")
    if (ended_S | cut_S)[:-1].any():
        raise ValueError(
            f"{where} goes on after its end (terminations, truncations) at step {int((ended_S | cut_S).argmax())}: cut it there"
        )
    seed = group.attrs.get("seed")
    return RecordedEpisode(
        observation_SO=observation_SO,
        action_SA=action_SA,
        reward_S=reward_S,
        terminated=bool(ended_S[-1]),
        seed=None if seed is None else int(seed),
        cost_S=cost_S,
    )


def _flat(node: Any, space: Mapping[str, Any], where: str) -> list[np.ndarray]:
    """The arrays [S, ...] of a space beside one another, in the order and form in which gymnasium flattens it."""
    import h5py

    kind = space.get("type", "Box")
    if kind in ("Dict", "Tuple"):
        inner = space["subspaces"]
        pairs = sorted(inner.items()) if kind == "Dict" else [(f"_index_{n}", one) for n, one in enumerate(inner)]
        return [array for name, one in pairs for array in _flat(node[name], one, where)]
    if isinstance(node, h5py.Group) or kind not in ("Box", "Discrete", "MultiDiscrete", "MultiBinary"):
        raise ValueError(
            f"{where} holds a {kind} space; vectors of numbers are wanted: Box, Discrete, MultiDiscrete, Dict of them"
        )
    values = np.asarray(node)
    values = values.reshape(len(values), math.prod(values.shape[1:]))
    if kind == "Discrete":
        return [np.eye(space["n"])[values[:, 0].astype(int) - int(space.get("start", 0))]]
    if kind == "MultiDiscrete":
        start = space.get("start") or [0] * len(space["nvec"])
        return [np.eye(n)[values[:, at].astype(int) - start[at]] for at, n in enumerate(space["nvec"])]
    return [values]


def write(recording: Recording, directory: Path, name: str) -> None:
    """As Minari lays it out, under ``directory/data``, which must not be there."""
    import h5py

    place = directory / "data"
    if place.exists():
        raise ValueError(f"{place} is there already; give a new directory")
    world = Environment(recording.source)
    place.mkdir(parents=True)
    with h5py.File(place / DATA, "w", track_order=True) as file:
        for number, episode in enumerate(recording.episodes):
            group = file.create_group(f"episode_{number}")
            group.attrs["id"], group.attrs["total_steps"] = number, episode.length
            if episode.seed is not None:
                group.attrs["seed"] = episode.seed
            last_S = np.arange(episode.length) == episode.length - 1
            action = episode.action_SA[:, 0] if recording.choices else episode.action_SA
            ends = {"terminations": last_S & episode.terminated, "truncations": last_S & (not episode.terminated)}
            columns = {"observations": episode.observation_SO, "actions": action, "rewards": episode.reward_S, **ends}
            if episode.cost_S is not None:
                columns[f"infos/{COST}"] = episode.cost_S
            for column, values in columns.items():
                group.create_dataset(column, data=values, chunks=True, maxshape=(None, *values.shape[1:]))
    low, high = world.limits
    sight = {"type": "Box", "dtype": "float32", "shape": [recording.observations]}
    sight |= {"low": [-float("inf")] * recording.observations, "high": [float("inf")] * recording.observations}
    acts = {"type": "Box", "dtype": "float32", "shape": [len(low)], "low": low, "high": high}
    if recording.choices:
        acts = {"type": "Discrete", "dtype": "int64", "start": 0, "n": recording.choices}
    metadata = {
        "dataset_id": name,
        "minari_version": LAYOUT,
        "data_format": "hdf5",
        "total_episodes": len(recording.episodes),
        "total_steps": recording.steps,
        "observation_space": json.dumps(sight),
        "action_space": json.dumps(acts),
        "env_spec": world.spec(),
        "dataset_size": round((place / DATA).stat().st_size / 1e6, 1),
        "algorithm_name": "gimbal",
    }
    (place / METADATA).write_text(json.dumps(metadata, indent=2) + "\n")


def joined(recordings: Sequence[Recording]) -> Recording:
    """The episodes of all, in turn, so that any beginning of it is a mixture of them."""
    first = recordings[0]
    for other in recordings[1:]:
        if (other.source, other.interface) != (first.source, first.interface):
            raise ValueError(
                f"episodes of {first.source} ({first.interface}) and of {other.source} ({other.interface}) are not of one environment"
            )
    episodes = tuple(_in_turn([each.episodes for each in recordings]))
    left_out = tuple(why for each in recordings for why in each.left_out)
    return Recording(source=first.source, episodes=episodes, choices=first.choices, left_out=left_out)


def _in_turn(lists: Sequence[Sequence[RecordedEpisode]]) -> Iterator[RecordedEpisode]:
    """Each list spread evenly over the whole."""
    places = [((n + 0.5) / len(each), which, n) for which, each in enumerate(lists) for n in range(len(each))]
    for _, which, n in sorted(places):
        yield lists[which][n]
