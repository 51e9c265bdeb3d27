"""Data sets of control that are made here, by rules written by hand and a seed: the same episodes whenever they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float

from gimbal.environments.gym import opened
from gimbal.environments.recording import COST, RecordedEpisode, Recording, joined
from gimbal.ops import philox, stable_hash

CART = "gimbal.environments.bounded_cart:BoundedCart"
DOCKING = "gimbal.environments.docking:Docking"
LINE = "gimbal.environments.coop_line:CoopLine"
HIDDEN = "gimbal.environments.hidden_cart:HiddenCart"
PLANS = "gimbal.environments.merging_plans:MergingPlans"  # not imported: that file needs gymnasium, an extra
PENDULUM, MAZE = "Pendulum-v1", "gimbal.environments.point_maze:PointMaze"
Rule = Callable[[Float[np.ndarray, " O"], np.random.Generator], Float[np.ndarray, " A"]]


@dataclass(frozen=True, kw_only=True)
class Swing:
    """Swings a pendulum up and holds it: torque along the speed while energy lacks, a spring and a brake near the top.

    ``strength`` is the share of the torque that it uses to swing, ``brake`` how well it holds; ``noise`` is added to all it does.
    """

    strength: float = 1.0
    brake: float = 3.0
    noise: float = 0.2

    def __call__(self, seen: Float[np.ndarray, " 3"], generator: np.random.Generator) -> Float[np.ndarray, " 1"]:
        cosine, sine, speed = (float(number) for number in seen)
        angle = np.arctan2(sine, cosine)
        energy = speed**2 / 6 + 5 * cosine  # 5 where it stands on top
        torque = 2 * self.strength * np.clip((5 - energy) * (1 if speed >= 0 else -1), -1, 1)
        if abs(angle) < 0.6:
            torque = -12 * angle - self.brake * speed
        return np.clip(np.array([torque + self.noise * generator.standard_normal()]), -2, 2)


def at_random(seen: Float[np.ndarray, " 3"], generator: np.random.Generator) -> Float[np.ndarray, " 1"]:
    return generator.uniform(-2, 2, 1)


def pendulum(name: str, rule: Rule, episodes: int) -> Recording:
    """Whole episodes of 200 steps; each is cut off and none ends."""
    world = opened(PENDULUM)
    rows = [_played(world, rule, ("pendulum", name, number)) for number in range(episodes)]
    return Recording(source=PENDULUM, episodes=tuple(rows))


def stitch(episodes: int = 600, steps: int = 30) -> Recording:
    """Ways between cells drawn at random, a new one whenever one is reached. 30 steps are 7 cells and the goal is 12 from the start: no
    episode leads from the one to the other, and what leads there must be put together from several. The goal is at an end of the maze:
    in the middle of it the mean of all these ways arrives by itself."""
    from gimbal.environments import point_maze as maze

    world, cells = opened(MAZE), sorted(maze.FREE)

    def one(number: int) -> RecordedEpisode:
        generator = philox("maze", "stitch", number)
        begin = cells[generator.integers(len(cells))]
        while begin == maze.GOAL:
            begin = cells[generator.integers(len(cells))]
        goal: list[Any] = []

        def rule(seen: Float[np.ndarray, " 2"], draws: np.random.Generator) -> Float[np.ndarray, " 2"]:
            while not goal or maze.cell_of(world.place) == goal[0]:
                goal[:] = [cells[draws.integers(len(cells))]]
            step = maze.towards(world.place, _away(goal[0])) + 0.05 * draws.standard_normal(2)
            return np.clip(step, -maze.REACH, maze.REACH)

        return _played(world, rule, ("maze", "stitch", number), steps, {"begin": begin})

    return Recording(source=MAZE, episodes=tuple(one(number) for number in range(episodes)))


@cache
def _away(cell: tuple[int, int]) -> dict[tuple[int, int], int]:
    from gimbal.environments import point_maze as maze

    return maze.distances(cell)


def _played(
    world: Any, rule: Rule, name: tuple[Any, ...], steps: int = 10**9, options: dict[str, Any] | None = None
) -> RecordedEpisode:
    generator, seed = philox("behavior", *name), stable_hash("behavior", *name) % 2**31
    seen, info = world.reset(seed=seed, options=options)
    sights, infos, actions, rewards, terminated, truncated = [_flat(seen)], [info], [], [], False, False
    while not (terminated or truncated or len(rewards) == steps):
        actions.append(rule(seen, generator).astype(np.float32))
        seen, reward, terminated, truncated, info = world.step(actions[-1])
        sights.append(_flat(seen))
        infos.append(info)
        rewards.append(reward)
    return RecordedEpisode(
        observation_SO=np.stack(sights).astype(np.float32),
        action_SA=np.stack(actions),
        reward_S=np.array(rewards, np.float32),
        terminated=bool(terminated),
        seed=seed,
        cost_S=np.array([info[COST] for info in infos], np.float32) if COST in info else None,
    )


def _flat(seen: Any) -> Float[np.ndarray, " O"]:
    """As gymnasium flattens it."""
    return np.concatenate([seen[name] for name in sorted(seen)]) if isinstance(seen, dict) else seen


def cart(episodes: int = 500) -> Recording:
    """Drives to places drawn at random, from any state there is. A quarter of the drivers ignore the bounds. The others stay inside if
    they can: they brake as late as they may, and as hard."""
    from gimbal.environments import bounded_cart as track

    world = opened(CART)

    def one(number: int) -> RecordedEpisode:
        generator = philox("cart", number)
        begin = generator.uniform(-1, 1, 2) * (track.WALL, track.FASTEST)
        careful, goal = number % 4 > 0, [0.0]
        reach = 0.95 * track.EDGE if careful else track.WALL

        def rule(seen: Float[np.ndarray, " 2"], draws: np.random.Generator) -> Float[np.ndarray, " 1"]:
            if draws.random() < 0.05 or not goal[0]:
                goal[0] = draws.uniform(-reach, reach)
            place, speed = (float(number) for number in seen)
            force = np.clip(3 * (goal[0] - place) - speed + 0.5 * draws.standard_normal(), -1, 1)
            after = speed + track.STEP * force
            # Where the hardest brake would then bring it to.
            stands = place + track.STEP * after + after * abs(after) / 2
            if careful and abs(stands) > track.EDGE and stands * speed > 0:
                force = -np.sign(speed)
            return np.array([force])

        return _played(world, rule, ("cart", number), options={"begin": begin})

    return Recording(source=CART, episodes=tuple(one(number) for number in range(episodes)))


def wandering(episodes: int = 20, frames: int = 16) -> Recording:
    """Pushes a cart, whose speed is hidden, by forces drawn at random, a new one in three steps of ten: no episode stands still."""
    source = f"{HIDDEN}@frames={frames}"
    world = opened(source)

    def one(number: int) -> RecordedEpisode:
        held = [0.0]

        def rule(seen: Float[np.ndarray, " O"], draws: np.random.Generator) -> Float[np.ndarray, " 1"]:
            if draws.random() < 0.3:
                held[0] = draws.uniform(-1, 1)
            return np.array(held)

        return _played(world, rule, ("hidden cart", number))

    return Recording(source=source, episodes=tuple(one(number) for number in range(episodes)))


def merging() -> Recording:
    from gimbal.environments.merging_plans import plans

    return plans()


def steady(episodes: int = 20) -> Recording:
    """Merges by plans of one push each, drawn at random between half a brake and a full push."""
    from gimbal.environments.merging_plans import AHEAD

    world = opened(PLANS)

    def rule(seen: Float[np.ndarray, " 11"], draws: np.random.Generator) -> Float[np.ndarray, " 8"]:
        return np.full(AHEAD, draws.uniform(-0.5, 1.0))

    return Recording(
        source=PLANS, episodes=tuple(_played(world, rule, ("merging", number)) for number in range(episodes))
    )


def line(episodes: int = 2000) -> Recording:
    """Agents that part among places, in each of the ways there are."""
    from gimbal.environments.coop_line import parted

    world = opened(LINE)
    rows = [_played(world, parted, ("line", number)) for number in range(episodes)]
    return Recording(source=LINE, episodes=tuple(rows))


def docking(episodes: int = 20) -> Recording:
    """Goes to its dock, not quite straight, and is stopped once it is there: the last observation of each is a success."""
    from gimbal.environments.docking import DOCK, STEP

    world = opened(DOCKING)

    def one(number: int) -> RecordedEpisode:
        def rule(seen: Float[np.ndarray, " 6"], draws: np.random.Generator) -> Float[np.ndarray, " 2"]:
            way = DOCK - world.place + 0.15 * draws.standard_normal(2)
            return np.clip(0.5 * way, -STEP, STEP)

        played = _played(world, rule, ("docking", number))
        there = int(played.reward_S.argmax()) + 1
        return replace(
            played,
            observation_SO=played.observation_SO[: there + 1],
            action_SA=played.action_SA[:there],
            reward_S=played.reward_S[:there],
        )

    return Recording(source=DOCKING, episodes=tuple(one(number) for number in range(episodes)))


def _mixed() -> Recording:
    return joined([pendulum("random", at_random, 40), pendulum("medium", MEDIUM, 40), pendulum("expert", EXPERT, 20)])


EXPERT, MEDIUM = Swing(), Swing(strength=0.5, brake=0.5, noise=1.0)
# By its name: the environment, and what makes the episodes, which takes seconds.
MADE: Mapping[str, tuple[str, Callable[[], Recording]]] = {
    "gimbal/pendulum/random-v0": (PENDULUM, lambda: pendulum("random", at_random, 100)),
    "gimbal/pendulum/medium-v0": (PENDULUM, lambda: pendulum("medium", MEDIUM, 100)),
    "gimbal/pendulum/expert-v0": (PENDULUM, lambda: pendulum("expert", EXPERT, 100)),
    "gimbal/pendulum/mixed-v0": (PENDULUM, _mixed),
    "gimbal/maze/stitch-v0": (MAZE, stitch),
    "gimbal/cart/bounds-v0": (CART, cart),
    "gimbal/cart/hidden-v0": (f"{HIDDEN}@frames=16", wandering),
    "gimbal/merging/plans-v0": (f"{PLANS}@latch=1", merging),
    "gimbal/merging/random-v0": (PLANS, steady),
    "gimbal/line/partings-v0": (LINE, line),
    "gimbal/dock/demos-v0": (DOCKING, docking),
}
