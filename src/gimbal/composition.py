"""What a part states about its run: what it refuses, what it advises, and its properties that others check.

``runtime.compose.check`` asks every part of a run, users' own too, at any depth. A rule is in the part it concerns; if it concerns two,
in the one whose room may import the other's. Rooms that may not import each other meet in an effect.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

from gimbal.nested import walk

Kind = TypeVar("Kind")
Remembering = TypeVar("Remembering", bound="AbstractRemembering")
State = Mapping[str, float]  # plain numbers: it goes into the checkpoint and into metrics.jsonl

# Effects: what a part does to the run, for rules that do not care which part does it.
ENTROPY = "pushes the entropy"
REFERENCE = "pulls towards the reference"
FITS_CRITIC = "is the critic's loss"
FITS_TURNS = "fits values at the first decisions of turns alone"
READS_TURNS = "reads values at the first decisions of turns alone"
DISAGREES = "has several critics"
ZERO_AT_MEDIAN = "gives the rollout at its group's median no advantage"
SEQUENCE_WEIGHT = "weighs whole sequences, up to its cap, and reports ess/sequence"
BALANCES = "fits the log-probability of whole rollouts, whoever drew them"
AT_SAMPLING = "evaluates each decision by the version that sampled it"
ABSORBS_DISCREPANCY = "leaves no discrepancy to correct"
TEMPERS = "draws some groups at another temperature"
GUIDES = "takes some rollouts of a group from a guide"
OBSERVES = "puts observations into rollouts"
MARKS_CONTROL = "marks control decisions"
KEEPS_SOLVED = "lets through as many solved groups as their curriculum says"
DRIVES = "draws a rollout in several calls, and cannot show it before its end"
GROWS_TREE = "scores each node of a tree, which knows its parent"
REVISES = "scores each row of an episode by itself"
LIMITS_TURNS = "ends an episode after as many turns as its task says"
GROWS = "draws further rollouts of a group that is scored"
DROPS_PROFILES = "drops groups that were drawn to learn of their tasks"
SUPERSEDES = "drops groups whose task is asked again"
STREAMS = "draws an episode block after block, each after the one before"
SHOWS = "shows its policy a part of the picture that it is to draw"
FORWARD = "learns from samples, and needs no log-probabilities of steps"
TELLS_ERRORS = "says how far off its values of single decisions are"
TELLS_WORTH = "brings its critic to the policy that acts"
TELLS_RISK = "says how likely an action is to break a limit"
FOLLOWS = "trains a world on what it foresees of several consecutive steps"
ENCODES = "teaches the code that a policy acts on"
LARGE = "is a model of the size that people pretrain"


@dataclass(frozen=True)
class Refusal:
    """Why a run is contradictory, and what to type instead."""

    reason: str


@dataclass(frozen=True)
class Advice:
    """Something worth knowing about a run that may start anyway.

    It is not printed for a recipe as shipped, whose docstring covers it, unless ``always``: then the user has something to provide.
    """

    reason: str
    always: bool = False


Verdict = Refusal | Advice


@runtime_checkable
class Chosen(Protocol):
    """A run as its parts see it; ``learns`` is its learner and settings. (The class of runs is in a higher room.)"""

    @property
    def policy(self) -> Any: ...
    @property
    def engine(self) -> Any: ...
    @property
    def tasks(self) -> Any: ...
    @property
    def store(self) -> Any: ...
    @property
    def held_out(self) -> Any: ...
    @property
    def sampling(self) -> Any: ...
    @property
    def rewards(self) -> tuple[Any, ...]: ...
    @property
    def prompts_per_step(self) -> int: ...
    @property
    def num_generations(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def curriculum(self) -> Any: ...
    @property
    def budget(self) -> Any: ...
    @property
    def max_staleness(self) -> int: ...
    @property
    def runtime(self) -> Any: ...
    @property
    def learns(self) -> Any: ...


class AbstractPart:
    """A component of a run. By default a part fits everywhere, has no properties that others check and names no reward."""

    needs: ClassVar[frozenset[str]] = frozenset()  # the optional columns of a batch that it reads
    names_rewards: ClassVar[tuple[str, ...]] = ()  # its fields that hold names of rewards of the run, "" being none

    def effects(self) -> frozenset[str]:
        """Its properties, in words that other parts check with ``Composition.doing``."""
        return frozenset()

    def columns(self) -> frozenset[str]:
        """The columns of tasks without which it does nothing: some task must have each."""
        return frozenset()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        """What it refuses and advises in this run. Checks of only its own fields run at construction."""
        yield from ()


class AbstractRemembering(ABC):
    """A part with state from earlier steps: a running mean, moments, a history.

    It is a frozen dataclass, and the learner keeps its state (``models.parts``, under the part's path in the update): ``init`` makes
    it, ``update`` moves it once after each step, and it is saved and resumed with the run. In your own loop:
    ``state = part.update(state, metrics)``, ``part.recalling(state)``.
    """

    @abstractmethod
    def init(self) -> State:
        """Its state for the first step."""

    @abstractmethod
    def update(self, state: State, metrics: Mapping[str, float]) -> State:
        """Its state after a step with these metrics, including its own.

        A metric that is missing is a KeyError; in a step that the closed loop undid the state then stays as it is.
        """

    def recalling(self: Remembering, state: State) -> Remembering:
        """The part with this state: by default these numbers replace its fields of the same names."""
        return replace(self, **state)  # pyrefly: ignore; every part is a dataclass


class Composition:
    """Finds the parts of a run by type and property, wherever they are, but in the records ``without``."""

    def __init__(self, run: Chosen, without: Iterable[Any] = ()) -> None:
        self.run = run
        apart = {id(part) for record in without for part in parts_of(record)}
        self.records = [part for part in parts_of(run) if id(part) not in apart]
        self.parts = [part for part in self.records if isinstance(part, AbstractPart)]

    def all(self, *kinds: type[Kind]) -> list[Kind]:
        return [part for part in self.records if isinstance(part, kinds)]

    def has(self, *kinds: type) -> bool:
        return bool(self.all(*kinds))

    def doing(self, effect: str) -> list[Any]:
        return [part for part in self.parts if effect in part.effects()]

    @property
    def needs(self) -> frozenset[str]:
        """The optional columns of a batch that some part reads."""
        return frozenset().union(*(part.needs for part in self.parts))

    @property
    def updates(self) -> int:
        """Of the policy on one batch."""
        return self.run.learns.optimization.epochs * self.run.learns.optimization.minibatches


def parts_of(here: Any) -> Iterator[Any]:
    """It, and every record in it, at any depth."""
    for part in (here, *(value for _, value in walk(here))):
        if is_dataclass(part) and not isinstance(part, type):
            yield part
