"""Games of several seats; those for two of OpenSpiel, their deals as tasks, and how far a policy is from an equilibrium."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, NamedTuple

import numpy as np

from gimbal.environments.base import AbstractEnvironment, AbstractEnvironmentSpec, AbstractTasks, Moment
from gimbal.ops import philox, stable_hash
from gimbal.records import Task

SEATS = 2
TOLD = re.compile(r"\[(\w+): ([^\]]*)\]")  # of an information state that is a list of facts
UNTOLD = ("Observer", "Player", "Pot", "Money", "Round")  # facts that follow from the others


@dataclass(frozen=True, kw_only=True)
class Turn:
    """Whose turn it is, what this seat has seen, and the numbers of its legal actions (none where they are words); at the end
    ``returns`` of all seats."""

    seat: int = -1
    seen: str = ""
    legal: tuple[int, ...] = ()
    returns: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Deals(AbstractTasks):
    """Task i is one deal of a game: all that is left to chance in it is drawn from (``seed``, i), alike in every match."""

    game: str = "kuhn_poker"
    seed: int = 0
    size: int = 1_000_000

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < self.size:
            raise IndexError(f"task {index} of {self.size}")
        seed = stable_hash("deal", self.game, self.seed, index) % 2**31
        return Task(id=f"{self.game}/{self.seed}/{index}", prompt=f"{self.game}\n", source=self.game, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Plays(AbstractTasks):
    """Task i is one decision of a match that both seats play at random: what is seen, and a legal action as ``columns["completion"]``.

    SFT on them makes a model that plays any legal action of these games, each as often as the others. Matches take turns among
    ``games``; everything is drawn from (``seed``, i).
    """

    games: tuple[str, ...] = ("kuhn_poker", "leduc_poker")
    seed: int = 0
    size: int = 1_000_000

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Task:
        game = self.games[index % len(self.games)]
        match = Deals(game=game, seed=self.seed, size=self.size)[index]
        rng, table = Random(f"plays:{self.seed}:{index}"), Table(game)
        turn, turns = table.reset(match, 0), []
        while turn.legal:
            turns.append((turn.seen, str(rng.choice(turn.legal))))
            turn = table.step(turns[-1][1]).observation
        seen, action = rng.choice(turns)
        return Task(id=f"plays/{match.id}", prompt=f"{seen}\n", columns={"completion": action}, source=game)


class AbstractGame(AbstractEnvironmentSpec, ABC):
    """A game whose observations are ``Turn``s: one seat after the other acts, and at the end each has a return."""

    @property
    @abstractmethod
    def seats(self) -> int: ...

    @property
    @abstractmethod
    def most(self) -> int | None:
        """How many tokens an action has at most; None: it is a turn, which the policy ends."""


def of_one(tool: AbstractEnvironmentSpec, whose: str) -> None:
    """Refuse a game of several seats where one policy acts alone."""
    if isinstance(tool, AbstractGame):
        name = type(tool).__name__
        raise ValueError(f"{whose}.tool is {name}, a game of several seats: workflow='SelfPlay(game={name}())'")


@dataclass(frozen=True, kw_only=True)
class Game(AbstractGame):
    """A game for two that OpenSpiel knows (kuhn_poker, leduc_poker, tic_tac_toe, ...), played at one table.

    An action is its number as text. One that is not legal loses the game at once: it is worth ``forfeit`` (the worst that the game
    has) to who took it, and 0 to the other, whose play it says nothing of.
    """

    name: str = "kuhn_poker"

    @property
    def seats(self) -> int:
        return SEATS

    @property
    def most(self) -> int:
        return 1

    def open(self) -> Table:
        return Table(self.name)


class Table(AbstractEnvironment):
    """One live match. ``state_dict`` of it is its deal and its actions, so that it is brought back by them."""

    def __init__(self, name: str) -> None:
        self.game = loaded(name)
        self.name = name
        self.forfeit = float(self.game.min_utility())
        self._state: Any = None
        self._task = Task(id="")
        self._dealt = 0

    def reset(self, task: Task, seed: int) -> Turn:
        """All that is left to chance is drawn by the task's own seed: all matches of a task begin alike, in every run."""
        self._state, self._task, self._dealt = self.game.new_initial_state(), task, 0
        return self._deal()

    def step(self, action: str) -> Moment:
        mover = self._state.current_player()
        if not action.isdecimal() or int(action) not in self._state.legal_actions():
            returns = tuple(self.forfeit if seat == mover else 0.0 for seat in range(SEATS))
            return Moment(observation=Turn(returns=returns), terminated=True, calls=1, errors=1)
        self._state.apply_action(int(action))
        turn = self._deal()
        return Moment(observation=turn, terminated=self._state.is_terminal(), calls=1)

    def fork(self) -> Table:
        other = Table(self.name)
        other._state, other._task, other._dealt = self._state.clone(), self._task, self._dealt
        return other

    def _deal(self) -> Turn:
        """Play what is left to chance, up to the next decision or the end."""
        while self._state.is_chance_node():
            actions, probabilities = zip(*self._state.chance_outcomes(), strict=True)
            left = philox("chance", self._task.seed, self._dealt).random()
            at = int((np.cumsum(probabilities) <= left).sum())
            self._state.apply_action(actions[min(at, len(actions) - 1)])  # rounding may leave the last sum below 1
            self._dealt += 1
        if self._state.is_terminal():
            return Turn(returns=tuple(self._state.returns()))
        return Turn(
            seat=self._state.current_player(),
            seen=seen(self._state),
            legal=tuple(self._state.legal_actions()),
        )


def seen(state: Any) -> str:
    """What the seat whose turn it is knows, as short text: OpenSpiel's own, or the values of its facts."""
    text = state.information_state_string()
    facts = TOLD.findall(text)
    if not facts:
        return text
    return "/".join(value.replace(" ", "") for name, value in facts if name not in UNTOLD)


def loaded(name: str) -> Any:
    """The game of this name."""
    try:
        import pyspiel  # late: it is an extra
    except ImportError as error:
        raise ValueError("games come from OpenSpiel, which is not installed: pip install open_spiel") from error
    try:
        game = pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise ValueError(f"OpenSpiel has no game {name}: {str(error).splitlines()[0][:200]}") from error
    kind = game.get_type()
    if game.num_players() != SEATS or kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ValueError(
            f"{name} is for {game.num_players()} and {kind.dynamics}; a game for two who take turns is wanted"
        )
    if not kind.provides_information_state_string:
        raise ValueError(f"{name} does not say in text what a seat knows; choose another game")
    return game


def decisions(name: str) -> dict[str, tuple[int, ...]]:
    """The legal actions of each thing that a seat may have seen, by the text of it: of a game that is small enough to walk."""
    found: dict[str, tuple[int, ...]] = {}
    pending = [loaded(name).new_initial_state()]
    while pending:
        state = pending.pop()
        if not state.is_terminal():
            if not state.is_chance_node():
                found[seen(state)] = tuple(state.legal_actions())
            pending += [state.child(action) for action in state.legal_actions()]
    return found


def nash_conv(name: str, chances: Mapping[str, Mapping[int, float]]) -> float:
    """What both seats together could win by answering this policy as well as possible, exactly: 0 at an equilibrium.

    ``chances``: by what a seat has seen, the probability of each action. This is the distance of the policy that draws again until its
    action is legal: what is not legal is left out and the rest scaled. In play an illegal action forfeits the game (``Game``), and no
    best answer takes one, so NashConv describes play only as far as ``illegal`` is near 0.
    """
    from open_spiel.python import policy
    from open_spiel.python.algorithms import exploitability

    game = loaded(name)

    class Told(policy.Policy):
        def __init__(self) -> None:
            super().__init__(game, list(range(SEATS)))

        def action_probabilities(self, state: Any, player_id: int | None = None) -> dict[int, float]:
            given = chances[seen(state)]
            legal = {action: given.get(action, 0.0) for action in state.legal_actions()}
            total = sum(legal.values())
            return {action: p / total if total > 0 else 1 / len(legal) for action, p in legal.items()}

    found: Any = exploitability.nash_conv(game, Told())
    return float(found)


class Illegal(NamedTuple):
    """How much of a policy ``nash_conv`` leaves out: the largest mass on illegal actions of any decision, and the probability that a
    match which the policy plays against itself ends by an illegal action."""

    most: float
    matches: float


def illegal(name: str, chances: Mapping[str, Mapping[int, float]]) -> Illegal:
    """What a policy leaves for illegal actions, exactly; ``chances`` as in ``nash_conv``."""
    most, lost = 0.0, 0.0
    pending = [(loaded(name).new_initial_state(), 1.0)]
    while pending:
        state, reached = pending.pop()
        if state.is_terminal():
            continue
        if state.is_chance_node():
            pending += [(state.child(action), reached * p) for action, p in state.chance_outcomes()]
            continue
        given = chances[seen(state)]
        legal = [(action, given.get(action, 0.0)) for action in state.legal_actions()]
        left = max(0.0, 1 - sum(p for _, p in legal))
        most, lost = max(most, left), lost + reached * left
        pending += [(state.child(action), reached * p) for action, p in legal]
    return Illegal(most=most, matches=lost)


def uniform(name: str) -> dict[str, dict[int, float]]:
    """The policy that takes any legal action."""
    return {text: dict.fromkeys(legal, 1 / len(legal)) for text, legal in decisions(name).items()}
