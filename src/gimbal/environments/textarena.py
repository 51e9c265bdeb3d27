"""TextArena's games in text: of one player as an environment, of several as seats of a match."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from threading import RLock
from typing import Any, ClassVar

import numpy as np

from gimbal.config.classes import nearest
from gimbal.config.own import raised
from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractGenerated, Failure, Moment
from gimbal.environments.games import AbstractGame, Turn
from gimbal.ops import stable_hash
from gimbal.records import Task

RULES = "You play a game in text. Each of your turns is one move, written as the game asks for it."
DRAWING = RLock()  # the games draw from the process's own generators, which one of them at a time may have


@dataclass(frozen=True, kw_only=True)
class TextArenaTasks(AbstractGenerated):
    """Task i is one start of TextArena's ``game`` (arXiv:2504.11442), drawn from (``seed``, i): a chat.

    Games are named as in the package (TowerOfHanoi-v0, GuessTheNumber-v0, TicTacToe-v0, ...). Those of one player are played in
    ``TextArena``, those of several in ``TextArenaMatch``. In a match, NAME-train shows a seat the board as it is and what was moved,
    where NAME shows all that was ever said, also why a move was refused.
    """

    game: str = "TowerOfHanoi-v0"
    seed: int = 0
    size: int = 1_000_000

    @property
    def solved_in(self) -> TextArena:
        return TextArena()

    def task(self, index: int) -> Task:
        known = _package().envs.registration.ENV_REGISTRY
        if self.game not in known:
            raise ValueError(f"TextArena has no game {self.game!r}{nearest(self.game, known)}")
        columns = {"messages": [{"role": "system", "content": RULES}], "game": self.game}
        seed = stable_hash("textarena", self.game, self.seed, index) % 2**31
        return Task(id=f"textarena/{self.game}/{self.seed}/{index}", source=self.game, seed=seed, columns=columns)


@dataclass(frozen=True, kw_only=True)
class TextArena(AbstractEnvironmentSpec):
    """Where tasks of ``TextArenaTasks`` of one player are played: Dialogue(tool=TextArena(), answers=30).

    A turn is one move; the answer is what the game then says. The reward is the package's, at the end of the game: 1 for a solved one,
    and in many games a share for part of it. A limit on turns belongs to the rules of a game, so that reaching it is an end, no
    truncation. The first move that is not allowed is answered with the reason, a second one in a row ends the game.

    The package draws from Python's and numpy's global generators. Here each game keeps its own state of both: the same task and the
    same moves give the same bytes, whatever is played beside it.
    """

    pays: ClassVar[bool] = True

    def open(self) -> AbstractEnvironment:
        return Arena(1)


@dataclass(frozen=True, kw_only=True)
class TextArenaMatch(AbstractGame):
    """Where tasks of ``TextArenaTasks`` of ``seats`` players are played by one policy: SelfPlay(game=TextArenaMatch()).

    A seat sees what the package shows to its player, and a turn of it is one move. Returns are the package's: in games for two mostly
    1, 0 or -1. The first move that is not allowed is answered with the reason, and a second one in a row loses the game.
    """

    seats: int = 2

    def __post_init__(self) -> None:
        if self.seats < 2:
            raise ValueError(f"TextArenaMatch has seats={self.seats}; a game of one player is played in TextArena()")

    @property
    def most(self) -> None:
        return None

    def open(self) -> AbstractEnvironment:
        return Arena(self.seats)


class Arena(AbstractEnvironment):
    """One live game. Its state is the package's object and that of the two generators."""

    def __init__(self, seats: int) -> None:
        self.seats = seats
        self._game: Any = None
        self._name = ""
        self._drawn: tuple[Any, Any] | None = None

    def reset(self, task: Task, seed: int) -> str | Turn:
        if "game" not in task.columns:
            raise ValueError(f"task {task.id} has no column game; TextArena plays the tasks of tasks=TextArenaTasks()")
        self._name = task.columns["game"]
        with self._alone(task.seed):
            try:
                self._game = _package().make(self._name)
                self._game.reset(num_players=self.seats, seed=task.seed)
            except Exception as error:  # of some games the code, or a file, or a key to a judge is missing
                raise Failure(
                    f"{self._name} does not begin with {self.seats} player{'s' * (self.seats > 1)}: {raised(error)}. Games of one are "
                    "played in TextArena(), others in TextArenaMatch(seats=N); docs/environments.md says what some of them lack"
                ) from error
        return self._seen()

    def step(self, action: str) -> Moment:
        with self._alone():
            before = self._state.current_player_id
            ended, _ = self._game.step(action=action)
            wrong = bool(vars(self._state).get("error_count") or self._state.game_info[before]["invalid_move"])
        if not ended:
            return Moment(observation=self._seen(), calls=1, errors=int(wrong))
        earned = self._state.rewards
        if earned is None:
            raise Failure(f"{self._name} has ended without rewards")
        returns = tuple(float(earned.get(seat, 0.0)) for seat in range(self.seats))
        if self.seats > 1:
            return Moment(observation=Turn(returns=returns), terminated=True, calls=1, errors=int(wrong))
        return Moment(observation=self._seen(), reward=returns[0], terminated=True, calls=1, errors=int(wrong))

    def fork(self) -> Arena:
        other = Arena(self.seats)
        other._game, other._name, other._drawn = copy.deepcopy(self._game), self._name, self._drawn
        return other

    @property
    def _state(self) -> Any:
        return self._game.state

    def _seen(self) -> str | Turn:
        """What is new to one player, without the moves that he made; of several, what the package shows to the one whose turn it is."""
        if self.seats > 1:
            with self._alone():
                seat, shown = self._game.get_observation()
            return Turn(seat=seat, seen=str(shown).strip())
        game, moves = _package().GAME_ID, _package().ObservationType.PLAYER_ACTION
        new = self._state.get_current_player_observation()
        return "\n".join(text for sender, text, kind in new if sender == game and kind is not moves)

    @contextmanager
    def _alone(self, seed: int | None = None) -> Iterator[None]:
        """Lends the game the generators of the process, in the state in which it left them (or begun anew), and gives them back."""
        with DRAWING:
            before = random.getstate(), np.random.get_state()
            try:
                if seed is not None:
                    random.seed(seed)
                    np.random.seed(seed)
                elif self._drawn is not None:
                    random.setstate(self._drawn[0])
                    np.random.set_state(self._drawn[1])
                yield
            finally:
                self._drawn = random.getstate(), np.random.get_state()
                random.setstate(before[0])
                np.random.set_state(before[1])


@lru_cache
def _package() -> Any:
    try:
        import textarena
    except ImportError as error:
        raise ValueError(
            f"these games come from TextArena, which is not installed whole ({error}): pip install -e '.[textarena]' in the clone"
        ) from error
    return textarena
