"""Quests in worlds of text that TextWorld makes: rooms, doors, keys and food, acted in by commands."""

from __future__ import annotations

import re
import tempfile
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, ClassVar

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Moment
from gimbal.ops import stable_hash
from gimbal.records import Task

RULES = "You are in a world of text. Answer with one command a turn, as: go east, take the key, unlock the chest with the key, look."
DIRECTIONS = ("north", "south", "east", "west")
STATUS = re.compile(r"\s*>\s*(-= .* =-.*)?\s*$")  # the prompt, and the line above the screen that ends in the text
ALONE = RLock()  # the package's generator and its parser of rules have state that threads would share


@dataclass(frozen=True, kw_only=True)
class TextWorldTasks(AbstractGenerated):
    """Task i is one world of TextWorld (arXiv:1806.11532) and a quest in it, made from (``seed``, i): a chat.

    ``rooms`` and ``objects`` of the world; ``quest`` is how many commands the shortest solution has. Each world is made and compiled
    when it is first played, which takes a second or two. The tasks are solved in ``TextWorld``.
    """

    rooms: int = 3
    objects: int = 4
    quest: int = 3
    seed: int = 0
    size: int = 1_000_000

    def __post_init__(self) -> None:
        if min(self.rooms, self.objects, self.quest) < 1:
            raise ValueError(
                f"TextWorldTasks has rooms={self.rooms}, objects={self.objects} and quest={self.quest}: 1 or more of each"
            )

    @property
    def solved_in(self) -> TextWorld:
        return TextWorld()

    def task(self, index: int) -> Task:
        shape = (self.rooms, self.objects, self.quest)
        _package()  # that it is missing is said here, and not by every world
        columns = {"messages": [{"role": "system", "content": RULES}], "world": shape}
        name = f"textworld/{'x'.join(map(str, shape))}"
        seed = stable_hash("textworld", *shape, self.seed, index) % 2**31
        return Task(id=f"{name}/{self.seed}/{index}", source=name, seed=seed, columns=columns)

    def solution(self, task: Task) -> list[str]:
        """The commands of the package's own walkthrough."""
        return list(_compiled(tuple(task.columns["world"]), task.seed)[1])


@dataclass(frozen=True, kw_only=True)
class TextWorld(AbstractEnvironmentSpec):
    """Where the tasks of ``TextWorldTasks`` are solved: Dialogue(tool=TextWorld(), answers=20).

    The last line of a turn is the command. It is one, and begins with a verb of the game or a direction: what speaks to the interpreter
    (save, restart, script) would write files or begin the game anew, and is answered as no command. The reward is what the score gains,
    as a share of the most that can be had: 1 in all for a quest that is done. A lost game ends without more; there is no limit but that
    of the workflow.
    """

    pays: ClassVar[bool] = True

    def open(self) -> AbstractEnvironment:
        return World()


class World(AbstractEnvironment):
    """One live game."""

    def __init__(self) -> None:
        self._live: Any = None
        self._verbs: frozenset[str] = frozenset()
        self._score = 0

    def reset(self, task: Task, seed: int) -> str:
        if "world" not in task.columns:
            raise ValueError(
                f"task {task.id} has no column world; TextWorld solves the tasks of tasks=TextWorldTasks()"
            )
        package = _package()
        place, _, verbs = _compiled(tuple(task.columns["world"]), task.seed)
        asked = package.EnvInfos(objective=True, description=True, score=True, max_score=True, won=True, lost=True)
        self.close()
        with ALONE:
            self._live, self._verbs, self._score = package.start(place, asked), verbs, 0
            begun = self._live.reset()
        return f"{begun.objective}\n\n{_told(begun.description)}"

    def step(self, action: str) -> Moment:
        line = (action.strip().splitlines() or [""])[-1].lower().strip(" .!>")
        words = re.findall(r"[\w'-]+", line)
        # The interpreter is C: a NUL ends the process, and half a surrogate cannot be passed on.
        plain = line.isascii() and line.isprintable()
        if not plain or not words or words[0] not in self._verbs or re.search(r"[.,;]|\bthen\b", line):
            return Moment(
                observation=f"That is no command. One begins with {', '.join(sorted(self._verbs))}.", calls=1, errors=1
            )
        with ALONE:
            seen, score, _ = self._live.step(line)
        earned, self._score = (score - self._score) / seen.max_score, score
        return Moment(observation=_told(seen.feedback), reward=earned, terminated=bool(seen.won or seen.lost), calls=1)

    def fork(self) -> World:
        other = World()
        with ALONE:
            other._live, other._verbs, other._score = self._live.copy(), self._verbs, self._score
        return other

    def close(self) -> None:
        if self._live is not None:
            self._live.close()


def _told(text: str) -> str:
    """Without the interpreter's prompt and status line, and with no empty lines but one between two paragraphs."""
    return re.sub(r"\n{3,}", "\n\n", STATUS.sub("", text)).strip()


@lru_cache
def _package() -> Any:
    try:
        import textworld
    except ImportError as error:
        raise ValueError(
            f"these worlds come from TextWorld, which is not installed whole ({error}): pip install -e '.[textworld]' in the clone"
        ) from error
    # jericho knows the scores of games that were published, and these are new.
    warnings.filterwarnings("ignore", message="Game .* is not fully supported")
    return textworld


@lru_cache
def _place() -> tempfile.TemporaryDirectory[str]:
    """Where this process keeps the games that it has compiled, until it ends."""
    return tempfile.TemporaryDirectory(prefix="gimbal-textworld-")


def _compiled(shape: tuple[int, ...], seed: int) -> tuple[str, tuple[str, ...], frozenset[str]]:
    """The game's file, the walkthrough, and the words that a command may begin with."""
    with ALONE:
        return _made(shape, seed)


@lru_cache(maxsize=4096)
def _made(shape: tuple[int, ...], seed: int) -> tuple[str, tuple[str, ...], frozenset[str]]:
    package = _package()
    options = package.GameOptions()
    options.nb_rooms, options.nb_objects, options.quest_length = shape
    options.seeds = seed
    options.path = str(Path(_place().name) / f"{'_'.join(map(str, shape))}_{seed}.z8")
    game = package.generator.make_game(options)
    verbs = frozenset(template.split()[0] for template in game.command_templates) | frozenset(DIRECTIONS)
    return package.generator.compile_game(game, options), tuple(game.metadata["walkthrough"]), verbs
