"""Missions in MiniGrid's and BabyAI's grids, told and acted in words."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.environments.gym import opened
from gimbal.ops import stable_hash
from gimbal.records import Task

ACTIONS = ("left", "right", "forward", "pickup", "drop", "toggle", "done")  # in the package's order
RULES = (
    "You are in a grid of cells and see what is before you. Answer with one word: left or right (turn), forward, pickup, drop, toggle "
    "(open a door or a box), done."
)
UNSEEN, EMPTY, WALL = "unseen", "empty", "wall"


@dataclass(frozen=True, kw_only=True)
class MiniGridTasks(AbstractGenerated):
    """Task i is one mission of ``level``, its grid drawn from (``seed``, i): a chat, to be solved in ``MiniGrid``.

    Levels are MiniGrid's (MiniGrid-Empty-5x5-v0, MiniGrid-DoorKey-6x6-v0) and BabyAI's (BabyAI-OpenDoor-v0), by gymnasium's names.
    """

    level: str = "BabyAI-GoToRedBallGrey-v0"
    seed: int = 0
    size: int = 1_000_000

    @property
    def solved_in(self) -> MiniGrid:
        return MiniGrid()

    def task(self, index: int) -> Task:
        columns = {"messages": [{"role": "system", "content": RULES}], "level": self.level}
        seed = stable_hash("minigrid", self.level, self.seed, index) % 2**31
        return Task(id=f"{self.level}/{self.seed}/{index}", source=self.level, seed=seed, columns=columns)

    def solution(self, task: Task) -> list[str]:
        """What BabyAI's own bot does; only of its levels."""
        from minigrid.utils.baby_ai_bot import BabyAIBot

        world = _made(task.columns["level"])
        world.reset(seed=task.seed)
        bot, turns, ended, action = BabyAIBot(world.unwrapped), list[str](), False, None
        while not ended:
            action = bot.replan(action)
            turns.append(ACTIONS[int(action)])
            _, _, terminated, truncated, _ = world.step(action)
            ended = terminated or truncated
        return turns


@dataclass(frozen=True, kw_only=True)
class MiniGrid(AbstractEnvironmentSpec):
    """Where the tasks of ``MiniGridTasks`` are solved: Dialogue(tool=MiniGrid(), answers=64).

    A turn's last word that is an action is done; the answer tells what stands in the 7 x 7 cells before the agent and what it carries.
    A turn without an action costs a step (done) and is told so. The reward is the package's: 1 - 0.9 x steps / most steps where the
    mission is accomplished, else 0; its limit on steps is a truncation.
    """

    pays: ClassVar[bool] = True

    def open(self) -> AbstractEnvironment:
        return Grid()


class Grid(AbstractEnvironment):
    """One live mission."""

    def __init__(self) -> None:
        self._world: Any = None

    def reset(self, task: Task, seed: int) -> str:
        if "level" not in task.columns:
            raise ValueError(f"task {task.id} has no column level; MiniGrid solves the tasks of tasks=MiniGridTasks()")
        self._world = _made(task.columns["level"])
        seen, _ = self._world.reset(seed=task.seed)
        return f"Mission: {seen['mission']}.\n{self._told(seen)}"

    def step(self, action: str) -> Moment:
        words = [word.strip(".,!:;'\"[]()<>").lower() for word in action.split()]
        known = [word for word in words if word in ACTIONS]
        does = known[-1] if known else ACTIONS[-1]
        seen, reward, terminated, truncated, _ = self._world.step(ACTIONS.index(does))
        told = self._told(seen) if known else f"That is no action; {', '.join(ACTIONS)} are.\n{self._told(seen)}"
        return Moment(observation=told, reward=float(reward), terminated=bool(terminated), truncated=bool(truncated))

    def fork(self) -> Grid:
        other = Grid()
        other._world = copy.deepcopy(self._world)
        return other

    def close(self) -> None:
        if self._world is not None:
            self._world.close()

    def _told(self, seen: Any) -> str:
        held = self._world.unwrapped.carrying
        carries = f"You carry a {held.color} {held.type}." if held is not None else "You carry nothing."
        return f"{described(seen['image'])} {carries}"


def described(image: Any) -> str:
    """What stands in the agent's view, near things first: column by row of (object, colour, state), the agent below in the middle."""
    from minigrid.core.constants import IDX_TO_COLOR, IDX_TO_OBJECT, STATE_TO_IDX

    states = {number: name for name, number in STATE_TO_IDX.items()}
    wide, deep, _ = image.shape
    found: list[tuple[int, str]] = []
    walls: Sequence[int] = [
        ahead for ahead in range(1, deep) if IDX_TO_OBJECT[int(image[wide // 2, deep - 1 - ahead, 0])] == WALL
    ]
    for x in range(wide):
        for y in range(deep):
            kind = IDX_TO_OBJECT[int(image[x, y, 0])]
            ahead, aside = deep - 1 - y, x - wide // 2
            if kind in (UNSEEN, EMPTY, WALL) or (ahead == aside == 0):
                continue
            way = [f"{ahead} ahead"] * (ahead > 0) + [f"{abs(aside)} to the {'left' if aside < 0 else 'right'}"] * (
                aside != 0
            )
            state = f"{states[int(image[x, y, 2])]} " if kind == "door" else ""
            found.append((ahead + abs(aside), f"a {state}{IDX_TO_COLOR[int(image[x, y, 1])]} {kind} {', '.join(way)}"))
    things = [f"a wall {ahead} ahead" for ahead in walls[:1]] + [text for _, text in sorted(found)]
    return f"You see {'; '.join(things)}." if things else "You see nothing."


@lru_cache
def _registered() -> Any:
    try:
        import minigrid
    except ImportError as error:
        raise ValueError(
            "these missions come from MiniGrid, which is not installed: pip install -e '.[minigrid]' in the clone"
        ) from error
    return minigrid


def _made(level: str) -> Any:
    _registered()
    return opened(level)
