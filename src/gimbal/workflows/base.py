"""The interface of workflows: a workflow drives a rollout, and is written as a generator of calls.

    def __call__(self, attempt):
        row = yield attempt.begin(stop=("=",))                  # sampled until it ends, or until "=" is written
        while row.stop == "paused":
            moment = yield Act(self.tool, row.text)              # answered outside the decode loop
            row = yield Draw(row=row, told=moment.observation)   # then continued
        return Episode(rows=(row,))

A list of calls (or of generators of calls) is started at once, and answered with the list of their answers when all are complete. Calls
and answers are plain records: the journal of answers is the whole state of a generator. A resumed run executes the generator again over
its journal, so between two calls it may depend only on its arguments and the answers: no clock, no random numbers of its own
(``ops.philox`` with your own names is fine), no outside variables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from gimbal.composition import DRIVES, AbstractPart
from gimbal.engines.base import DRAW, AbstractEngine, AbstractEngineSpec, Witness
from gimbal.environments.base import AbstractEnvironmentSpec
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec
from gimbal.records import AbstractSampling, Rollout, Task

PAUSED = "paused"  # ``stop`` of a row that only its caller's own words or length have stopped; no episode ends so


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Sample a row from the attempt's prompt (or that of ``task``), or continue ``row`` after the observation ``told``. Returns the
    row.

    The row ends according to ``sampling`` (by default the attempt's). At one of the strings ``stop``, or after ``most`` decisions, it
    is only PAUSED. ``told`` (text, tokens, or messages, which the chat template puts after its turn) is an observation: it does not
    count as decisions, but counts toward length; if there is no room for it, the row has ended by ``length``.

    ``role`` says who acts, one of the workflow's ``players``: the row carries it, also when it is continued, and is sampled with the
    role's own weights where the run's ``separate`` gives it some.

    ``after`` is the block that a block of a stream follows, a finished sample, for a denoising policy with history. ``start`` is the
    noise that a path of a denoising policy begins with; by default each sample has its own.
    """

    row: Rollout | None = None
    told: str | Sequence[int] | Sequence[Mapping[str, Any]] | None = None
    sample: int | None = None
    task: Task | None = None
    sampling: AbstractSampling | None = None
    stop: tuple[str, ...] = ()
    most: int | None = None
    role: str = ""
    after: Float[Tensor, ...] | None = None
    start: Float[Tensor, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Fork:
    """Branch off a row: keep its first ``at`` decisions and sample the rest. Returns the branch.

    Kept decisions do not count in the branch, so each decision counts in the row that sampled it. At 0 it begins at the prompt.
    ``forced`` are tokens placed next, before sampling: they were not sampled, so they do not count, and their log-probability is 0.
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
    """A given row that is not sampled, followed by the end-of-text token if ``end``. Returns the row.

    Its decisions count, and their sampler log-probability is 0: nothing was sampled. ``text`` may be an assistant's message, with
    calls of tools: its text is what the model's chat template writes after the generation prompt.
    """

    text: str | Mapping[str, Any]
    end: bool = True
    sample: int | None = None


@dataclass(frozen=True, kw_only=True)
class Act:
    """Act in an environment (None: reset it; a row: the text of its newest turn). Returns a ``Moment``, with an ``error`` if the
    environment raises or does not answer within ``deadline`` seconds; to be made and reset it has ``setup`` (None: as many).

    Meanwhile all other rows continue. The answer joins ``overlap`` engine steps after the question, and is waited for if it is late;
    sooner only if nothing else can be generated. So the order of events does not depend on the wall clock. With None it joins when it
    arrives, and only its own row waits for it: which version of the weights generates what follows, and which group completes first,
    then depend on the clock.
    ``seat`` distinguishes several environments of one attempt. A new one starts from ``after``, (seat, actions): the state of that seat
    after so many actions.
    """

    environment: AbstractEnvironmentSpec
    action: Any = None
    seat: int = 0
    after: tuple[int, int] | None = None
    deadline: float = 60.0
    setup: float | None = None
    overlap: int | None = 0


@dataclass(frozen=True, kw_only=True)
class Encode:
    """The tokens of a task's prompt, or of the observation ``told`` to ``row``, for a workflow that needs them before sampling. Returns
    ``EncodedPrompt``."""

    task: Task | None = None
    row: Rollout | None = None
    told: str | Sequence[Mapping[str, Any]] = ""


@dataclass(frozen=True, kw_only=True)
class EncodedPrompt:
    """``ids``, and how many more the model's context has room for; or the sentence with which its template or tokenizer ``refused``."""

    ids: tuple[int, ...] = ()
    room: int = 0
    refused: str = ""


@dataclass(frozen=True, kw_only=True)
class Decode:
    """Decode tokens. Returns their text."""

    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Read:
    """The last hidden state behind the first ``at`` decisions of each of these rows. Returns [N, H]."""

    rows: tuple[Rollout, ...]
    at: int


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Cancel the generation in progress for a sample. Its call returns the row so far (``stop`` "cancelled"), or None if there is
    nothing; this one returns the number of cancelled rows."""

    sample: int


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Ask another policy, one of the workflow's ``roles``. Returns its row, whose ``role`` has this name.

    Such a row is not from the policy being trained; do not put any part of it into an episode.
    """

    role: str
    task: Task
    sampling: AbstractSampling | None = None


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A task, for these samples of its group (one, or those of a whole group).

    ``memory`` is the workflow's memory when the attempt began. ``fork`` is where its first row begins, (row, at), if not at the prompt.
    ``judged``: rewards will score its episodes, so that they need no score of their own.
    """

    group: int
    task: Task
    samples: tuple[int, ...]
    sampling: AbstractSampling
    seed: int
    memory: Any = None
    fork: tuple[Rollout, int] | None = None
    judged: bool = True

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
        """The attempt of a single sample, which may branch off a row."""
        return replace(self, samples=(sample,), fork=fork)


@dataclass(frozen=True, kw_only=True)
class Role:
    """Another policy, which is asked but not trained, and the engine that samples from it."""

    policy: AbstractPolicySpec
    engine: AbstractEngineSpec

    def start(self) -> AbstractEngine:
        policy = self.policy.load()
        engine = self.engine.start(policy)
        engine.load(0, policy.state_dict())
        return engine


@runtime_checkable
class Drawing(Protocol):
    """How rows of another kind than the policy's are drawn, for a role with a model of its own."""

    @property
    def policy(self) -> AbstractPolicySpec: ...
    @property
    def engine(self) -> AbstractEngineSpec: ...
    @property
    def sampling(self) -> AbstractSampling: ...


def begun(kind: Drawing, beside: AbstractPolicy) -> AbstractEngine:
    """Its engine, on the device of the policy that it is beside."""
    return kind.engine.start(kind.policy.load().to(next(beside.parameters()).device))


Steps = Generator[Any, Any, Any]  # of calls, to answers; returns an Episode or a Drop for each sample


class AbstractWorkflow(AbstractPart, ABC):
    """Drives a rollout. A frozen dataclass; called with an attempt, it is a generator of calls.

    It returns an ``Episode``, or a ``Drop`` if it cancels the attempt; if it is ``whole``, a list of these, one for each of
    ``attempt.samples``.
    """

    @property
    def whole(self) -> bool:
        """Whether an attempt covers all samples of a group instead of one."""
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

    def accepts(self, task: Task) -> None:
        """Raises ValueError if it cannot use such a task, which would end the run later; called before the first step."""
        return None

    def copies(self, task: Task) -> Sequence[Any]:
        """The answers to a task that it writes instead of drawing: texts and messages. Before the first step the policy tries them."""
        return ()

    @property
    def players(self) -> frozenset[str]:
        """The roles of the rows that it draws for training, by name. They share the policy, but for those in the run's ``separate``."""
        return frozenset()

    @property
    def at_once(self) -> int | None:
        """How many attempts may be in progress in a process; the others wait. None: no limit."""
        return None

    @abstractmethod
    def __call__(self, attempt: Attempt) -> Steps: ...

    def witnessed(self, word: Witness, canary: Sequence[Rollout]) -> Witness:
        """The engine's answer to a canary, received the way external clients receive its answers."""
        return word

    def begin(self) -> Any:
        """The initial memory kept across attempts: plain values (numbers, strings, tuples), because they are saved; never changed in
        place."""
        return None

    def remember(self, memory: Any, attempt: Attempt, rows: Sequence[Rollout]) -> Any:
        """``memory`` after an attempt with these rows."""
        return memory

    def renewed(self, memory: Any) -> Any:
        """``memory`` after new weights arrive."""
        return memory
