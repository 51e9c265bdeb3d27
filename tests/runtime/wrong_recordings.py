"""For each rule by which recorded episodes are refused: data that break it, and a run that would learn from them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from gimbal.environments.minari import Minari
from gimbal.environments.recording import METADATA, write
from gimbal.recipes.papers.control.sac import sac
from gimbal.recipes.papers.offline.fisor import fisor
from gimbal.recipes.papers.offline.iql import iql

PENDULUM = Minari(dataset="gimbal/pendulum/random-v0")
CART = Minari(dataset="gimbal/cart/bounds-v0")


def kept(place: Path, data: Minari, change=lambda episode: {}, source: str | None = None) -> Minari:
    """Three of its episodes, changed, as a data set that names ``source``."""
    found = data.recording
    episodes = tuple(replace(one, **change(one)) for one in found.episodes[:3])
    write(replace(found, episodes=episodes), place, place.name)
    if source is not None:
        path = place / "data" / METADATA
        path.write_text(json.dumps({**json.loads(path.read_text()), "env_spec": json.dumps({"id": source})}))
    return Minari(dataset=str(place))


def beside(data: Minari):
    return replace(sac(), store=replace(sac().store, prior=data))


def only(data: Minari):
    return replace(iql(), tasks=data)


def safe(data: Minari):
    return replace(fisor(), tasks=data)


def costing(cost):
    return lambda one: {"cost_S": np.full(one.length + 1, cost, np.float32)}


def at(action_SA, step, value):
    changed_SA = action_SA.copy()
    changed_SA[step] = value
    return changed_SA


def wider(one):
    return {"action_SA": np.repeat(one.action_SA, 3, 1)}


def runs(place: Path) -> dict:
    """What is said, and of which run."""
    tenfold = kept(place / "tenfold", PENDULUM, lambda one: {"action_SA": 10 * one.action_SA})
    wide = kept(place / "wide", PENDULUM, wider)
    silent = kept(
        place / "silent",
        CART,
        lambda one: {"cost_S": None if one.seed == CART.recording.episodes[1].seed else one.cost_S},
    )
    second = PENDULUM.recording.episodes[1].seed
    once = kept(
        place / "once",
        PENDULUM,
        lambda one: {"action_SA": at(one.action_SA, 7, -2.001) if one.seed == second else one.action_SA},
    )
    outside = "of 600 actions outside of the bounds of Pendulum-v1, first in episode"
    return {
        rf"once has 1 {outside} 1 \(from 0\), step 7: -2.001 as number 0, where -2 to 2 is taken": only(once),
        rf"tenfold has 5\d\d {outside} 0 ": beside(tenfold),
        "wide has 3 observations, 3 real actions, and Pendulum-v1, which it names as its environment, .*recording is wrong": only(
            wide
        ),
        "stitch-v0 was recorded in .*PointMaze, and this run acts in Pendulum-v1.*tasks.environment=gimbal.environments": beside(
            Minari(dataset="gimbal/maze/stitch-v0")
        ),
        "other was recorded in Pendulum-v0, and this run acts in Pendulum-v1.*write Pendulum-v1 as the id of env_spec": beside(
            kept(place / "other", PENDULUM, source="Pendulum-v0")
        ),
        "unnamed has 2 observations, .* which this run acts in, 3 observations.*tasks.environment=NAME": beside(
            kept(place / "unnamed", CART, source="")
        ),
        "in .*free 0 of [0-9,]+ observations violate it": safe(kept(place / "free", CART, costing(0.0))),
        r"in .*lost ([0-9,]+) of \1 observations violate it": safe(kept(place / "lost", CART, costing(1.0))),
        r"silent says nothing of it in 1 of 3 episodes, first in episode 1 \(from 0\): each": safe(silent),
    }


def sound(place: Path) -> list:
    """Runs that keep the rules, if only just."""
    near = kept(
        place / "near", PENDULUM, lambda one: {"action_SA": (one.action_SA * (2 + 1e-5) / 2).clip(-2 - 1e-5, 2 + 1e-5)}
    )
    return [
        only(near),
        beside(near),
        safe(kept(place / "cart", CART)),
        beside(kept(place / "nameless", PENDULUM, source="")),
    ]
