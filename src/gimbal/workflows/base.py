"""What a workflow is: who drives a rollout, written as a generator of calls.

    def __call__(self, attempt):
        row = yield attempt.begin(stop=("=",))                  # drawn until it ends, or until "=" is written
        while row.stop == "paused":
            moment = yield Act(self.tool, row.text)              # answered outside of the decode loop
            row = yield Draw(row=row, told=moment.observation)   # and on with it
        return Episode(rows=(row,))

A list of calls (or of generators of calls) is begun at once, and answered with the list of their answers when all are there. Calls
and answers are plain records: the journal of answers is the whole state of a generator. A run that continues after it was stopped
executes the generator again over its journal, so between two calls it may go by nothing but its arguments and the answers: no
clock, no random numbers of its own (``ops.philox`` with names of its own is fine), no variable outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gimbal.composition import DRIVES, AbstractPart
from gimbal.engines.base import DRAW, AbstractEngine, AbstractEngineSpec, Witness
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.policies.base import AbstractPolicySpec
from gimbal.records import AbstractSampling, Rollout, Task

PAUSED = "paused"  # ``stop`` of a row that only its caller's own words or length have stopped; no episode ends so


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw a row from the attempt's prompt (or that of ``task``), or continue with ``row`` after what it is ``told``. Answered with it.

    The row ends as ``sampling`` (the attempt's own) says. At one of the strings ``stop``, or after ``most`` decisions, it is only
    PAUSED. What it is told (text, tokens, or messages, which the chat template puts behind its turn) is an observation: not masked
    in, but part of its length; where there is no room for it the row has ended by ``length``.
    """

    row: Rollout | None = None
    told: str | Sequence[int] | Sequence[Mapping[str, Any]] | None = None
    sample: int | None = None
    task: Task | None = None
    sampling: AbstractSampling | None = None
    stop: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Fork:
    """Draw another end to a row: its first ``at`` decisions are taken over, and what follows is drawn. Answered with the branch.

    What it took over is not masked in, so each decision counts in the row that drew it. At 0 it begins at the prompt. ``forced`` are
    tokens that stand next, before anything is drawn: nobody sampled them, so they are not masked in, and their log-probability is 0.
    """

    row: Rollout
    at: int
    forced: tuple[int, ...] = ()
    sample: int | None = None
    sampling: AbstractSampling | None = None
    stop: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, kw_only=True)
class Write:
    """A row that is given and not drawn, with the end-of-text token behind it if it is to ``end``. Answered with the row.

    Its decisions count, and their log-probability by the sampler is 0: nothing was sampled.
    """

    text: str
    end: bool = True
    sample: int | None = None


@dataclass(frozen=True, kw_only=True)
class Act:
    """Do something in an environment (None: begin it again; a row: the text of its newest turn). Answered with a ``Moment``, and with
    one that has an ``error`` where the environment raises or does not answer within ``deadline`` seconds.

    Meanwhile all other rows continue. The answer joins them ``overlap`` steps of the engine after the question, waited for if it is not
    there yet; sooner only where nothing else can be drawn. So the order of things does not hang on the clock on the wall. With None
    it joins when it comes, and nothing waits for it but what it is for: which version of the weights draws what comes after it, and
    which group is whole first, then go by the clock.
    ``seat`` tells apart several environments of one attempt. One that is new begins as ``after`` says, (seat, actions): as that seat
    was after so many actions.
    """

    environment: AbstractEnvironmentSpec
    action: Any = None
    seat: int = 0
    after: tuple[int, int] | None = None
    deadline: float = 60.0
    overlap: int | None = 0


@dataclass(frozen=True, kw_only=True)
class Encode:
    """The tokens of a task's prompt, or of what ``row`` is ``told``, for a workflow that must know of them before it draws. Answered
    with ``Encoded``."""

    task: Task | None = None
    row: Rollout | None = None
    told: str | Sequence[Mapping[str, Any]] = ""


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """``ids``, and how many more the model's context has room for; or the sentence with which its template or tokenizer ``refused``."""

    ids: tuple[int, ...] = ()
    room: int = 0
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Decode:
    """The text of some tokens. Answered with it."""

    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Stop:
    """End what is being drawn for a sample now. Its call is answered with the row so far (``stop`` "cancelled"), None if there is
    nothing; this one with how many rows were ended."""

    sample: int


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Have another policy answer: one of the workflow's ``roles``. Answered with its row, whose ``role`` has this name.

    Such a row is no decision of the policy that is trained; put no part of it into an episode.
    """

    role: str
    task: Task
    sampling: AbstractSampling | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """What is to be done: a task, for these samples of its group (one, or those of a whole group).

    ``memory`` is the workflow's own as it stood when the attempt began. ``fork`` is where the first row of it begins, (row, at), where
    it does not begin at the prompt.
    """

    group: int
    task: Task
    samples: tuple[int, ...]
    sampling: AbstractSampling
    seed: int
    memory: Any = None
    fork: tuple[Rollout, int] | None = None

    @property
    def sample(self) -> int:
        return self.samples[0]

    def begin(self, *, stop: tuple[str, ...] = (), most: int | None = None) -> Draw | Fork:
        """The call that its first row begins with."""
        if self.fork is None:
            return Draw(task=self.task, sample=self.sample, sampling=self.sampling, stop=stop, most=most)
        row, at = self.fork
        return Fork(row=row, at=at, sample=self.sample, sampling=self.sampling, stop=stop, most=most)

    def of(self, sample: int, fork: tuple[Rollout, int] | None = None) -> Attempt:
        """The attempt of one of its samples alone, which may split off a row."""
        return replace(self, samples=(sample,), fork=fork)


@dataclass(frozen=True, kw_only=True)
class Role:
    """Another policy, which is asked and not trained, and the engine that draws from it."""

    policy: AbstractPolicySpec
    engine: AbstractEngineSpec

    def start(self) -> AbstractEngine:
        policy = self.policy.load()
        engine = self.engine.start(policy)
        engine.load(0, policy.state_dict())
        return engine


Steps = Generator[Any, Any, Any]  # of calls, to answers; returns an Episode or a Drop for each sample


class AbstractWorkflow(AbstractPart, ABC):
    """Who drives a rollout. A frozen dataclass; called with an attempt it is a generator of calls.

    It returns an ``Episode``, or a ``Drop`` where it gives the attempt up; where it is ``whole`` a list of these, one for each of
    ``attempt.samples``.
    """

    @property
    def whole(self) -> bool:
        """Whether an attempt is all the samples of a group together, and not one of them."""
        return False

    @property
    def requires(self) -> frozenset[str]:
        """What an engine must be able to do."""
        return frozenset({DRAW})

    def effects(self) -> frozenset[str]:
        return frozenset({DRIVES})

    @property
    def roles(self) -> Mapping[str, Role]:
        """Other policies that it asks, by name."""
        return {}

    @property
    def at_once(self) -> int | None:
        """How many attempts may be under way in a process; the others wait. None: as many as are asked for."""
        return None

    @abstractmethod
    def __call__(self, attempt: Attempt) -> Steps: ...

    def witnessed(self, word: Witness, canary: Sequence[Rollout]) -> Witness:
        """What the engine says of a canary, as those hear it who have its answers by another way than a call of ours."""
        return word

    def begin(self) -> Any:
        """What it remembers from attempt to attempt, at the beginning: plain values (numbers, strings, tuples), for they are
        saved; never changed in place."""
        return None

    def remember(self, memory: Any, attempt: Attempt, rows: Sequence[Rollout]) -> Any:
        """``memory`` after an attempt that came to these rows."""
        return memory

    def renewed(self, memory: Any) -> Any:
        """``memory`` when new weights have come."""
        return memory
