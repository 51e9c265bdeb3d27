"""Engines: an engine turns requests into rollouts with the weights it loaded last."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import AT_SAMPLING, AbstractPart, Advice, Composition, Verdict
from gimbal.engines.precision import Form
from gimbal.engines.receipts import Prints, Reading, Receipt
from gimbal.environments.base import reason
from gimbal.policies.base import AbstractPolicy
from gimbal.records import AbstractSampling, Drop, Episode, Rollout, Task

# What an engine can do, and what a workflow may need of it.
DRAW = "draw rows"
CONTINUE = "go on with a row"  # a row that has left the engine, with new input
FORK = "fork a row"  # sample another continuation of its beginning
RECORD = "record entropy"  # the entropy of each distribution sampled from
RIVALS = "record rivals"  # the likeliest other token that does not end the text
READ = "read hidden states"
ROWS = 1 << 32  # above the number of samples in a group


@dataclass(frozen=True, kw_only=True)
class Request:
    """One row to sample. Its decisions depend on (seed, task.id, sample, row) and the weights, not on its neighbours.

    ``group`` is the dispatch order of the group it belongs to; requests of one group share their prompt's prefill. ``row``
    distinguishes the rows of one sample; it is 0 unless a workflow samples several. ``after`` is the block before, in a stream of
    blocks of a denoising policy, and ``start`` the noise that its path begins with, if it is not to be the sample's own.
    """

    group: int
    task: Task
    sample: int
    sampling: AbstractSampling
    seed: int
    row: int = 0
    after: Tensor | None = None
    start: Tensor | None = None

    @property
    def key(self) -> tuple[int, int]:
        return row_key(self.group, self.sample, self.row)

    @property
    def stream(self) -> tuple[object, ...]:
        """The name of its random stream."""
        return self.seed, self.task.id, self.sample, *([f"row {self.row}"] if self.row else [])


def row_key(group: int, sample: int, row: int) -> tuple[int, int]:
    """(group, sample) of a sample's first row, and a separate key for each further row."""
    return group, sample + ROWS * row


class Needed(ValueError):
    """A rollout that must not be dropped failed."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The result of a request, under its key: an episode, or the reason why there is none."""

    key: tuple[int, int]
    outcome: Episode | Drop

    @classmethod
    def of(cls, key: tuple[int, int], rollout: Rollout) -> Finished:
        """The result that is an episode of this one row."""
        return cls(key=key, outcome=Episode.of(rollout))

    @property
    def settled(self) -> Episode | Drop:
        """The outcome, with a broken episode as a Drop: a reward of 0 would blame the policy for its environment."""
        done = self.outcome
        if isinstance(done, Drop) or not done.error:
            return done
        why = reason(done.fault, late=done.late)
        return Drop(why, drawn=done.drawn, said=done.error, task=done.task.id)

    @property
    def cancelled(self) -> Rollout | Drop | None:
        """What ``cancel`` returns of a result that nobody has read yet."""
        return cut_short(None if isinstance(self.outcome, Drop) else self.outcome.last, self.outcome.drawn)

    @property
    def rollout(self) -> Rollout:
        """The episode's last row, for a caller whose requests are never dropped."""
        if isinstance(self.outcome, Drop):
            if self.outcome.said:
                raise Needed(f"a rollout that this run needs failed ({self.outcome.reason}): {self.outcome.said}")
            raise ValueError(
                f"the sampler gave up request {self.key} ({self.outcome.reason}), which is needed here; request it again"
            )
        return self.outcome.last


def cut_short(row: Rollout | None, drawn: int) -> Rollout | Drop | None:
    """What was sampled of a cancelled request: its row or, where ``drawn`` decisions are not those of one row, their number."""
    if not drawn:
        return None
    if row is None or row.drawn != drawn:
        return Drop("cancelled", drawn=drawn)
    return replace(row, stop="cancelled")


@dataclass(frozen=True, kw_only=True)
class Witness:
    """The log-probabilities that one copy of the weights gives to the decisions of a canary, by rollout."""

    who: str  # "" if there is only one copy
    due: int  # the version sent to it
    version: int  # the version it reports
    logprob_D: Float[Tensor, " D"]


class Unserved(ValueError):
    """The sampler was lost repeatedly, so the run ends. No training has happened since the last step."""


class AbstractEngine(ABC):
    """A live engine. Each submitted request comes out of ``step`` exactly once, as an episode or a counted drop, unless it
    is cancelled. A caller that may ``extend`` rows sets ``extended``; the engine then keeps the computed state of a row that just
    ended."""

    extended = False

    @property
    @abstractmethod
    def version(self) -> int:
        """The version of its weights; -1 before the first load."""

    @property
    @abstractmethod
    def tolerance(self) -> float:
        """The largest mean |log-prob gap| to the trainer at equal weights that its precision explains."""

    @property
    def computed(self) -> int | None:
        """Tokens that the model has read for rollouts since it started; None if they are not counted."""
        return None

    @property
    @abstractmethod
    def in_flight(self) -> int:
        """Requests submitted and not yet finished or cancelled."""

    @abstractmethod
    def submit(self, request: Request) -> None: ...

    def extend(self, request: Request, rollout: Rollout, told: Sequence[int] = (), *, first: int | None = None) -> None:
        """Submit ``request`` with the ``first`` decisions (None: all) of a finished row as its own, followed by given tokens; it
        continues from there. Only for an engine that can CONTINUE or FORK."""
        raise ValueError(
            f"{type(self).__name__} cannot continue a row: use engine=Native() or engine=VLLM(), or workflow=SingleTurn()"
        )

    def hidden(self, rollouts: Sequence[Rollout], at: int) -> Float[Tensor, "N H"]:
        """The last hidden state after the first ``at`` decisions of each, by the current weights. Only for an engine that can READ."""
        raise ValueError(f"{type(self).__name__} cannot read hidden states: use engine=Native()")

    @abstractmethod
    def step(self) -> list[Finished]:
        """Sample the next decision of every live request, and return those that ended. Deterministic."""

    @abstractmethod
    def cancel(self, key: tuple[int, int]) -> Rollout | Drop | None:
        """Remove a request; returns what was sampled so far (stop='cancelled'), or None if nothing was.

        A Drop says how many decisions were sampled where they are no single row: what is thrown away counts as generated too.
        """

    def partial_rollouts(self) -> list[Finished]:
        """The partial rollouts of requests in flight, if any. ValueError if the engine cannot show them."""
        if not self.in_flight:
            return []
        raise ValueError(
            f"{type(self).__name__} cannot show unfinished rollouts, which the anchor Interruption evaluates before each update: use "
            "engine=Native(), or anchor=SamplingVersion(...)"
        )

    @abstractmethod
    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        """Sample with these weights (a copy is taken) from the next decision on, also in unfinished rollouts."""

    @abstractmethod
    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        """Log-probabilities of this rollout's decisions, computed by the sampling path itself, for the proof of delivery."""

    def witness(self, version: int, canary: Sequence[Rollout]) -> list[Witness]:
        """The witnesses of all copies of the weights that have news; ``version`` was sent last."""
        logprob_D = torch.cat([self.score(rollout).cpu() for rollout in canary])
        return [Witness(who="", due=version, version=self.version, logprob_D=logprob_D)]

    @property
    def form(self) -> Form | None:
        """How its copies store the weights; None if they cannot be read back."""
        return None

    def manifest(self, tensors: Mapping[str, Tensor]) -> Prints | None:
        """The reading to expect after these tensors of the trainer are loaded; None if there is no reading."""
        return None if self.form is None else self.form.prints(tensors)

    def reading(self) -> Reading | None:
        """Checksums of what the copy in this process holds; None if there is no copy, or it cannot be read."""
        return None

    def heard(self, *, wait: bool) -> list[Receipt]:
        """Readings after loads in other processes since the last call. ``wait`` for processes that are idle."""
        return []

    @property
    def separate(self) -> Mapping[str, AbstractEngine]:
        """The engines of models trained beside the policy, by name; each is loaded and proved on its own."""
        return {}

    def metrics(self) -> Mapping[str, float]:
        """Metrics since the last call."""
        return {}

    def rest(self) -> None:
        """Release memory until the next ``load``. Nothing is in flight, and nothing is sampled or read until then."""
        return None

    def close(self) -> None:
        """End what it started outside this process. It is not used afterwards."""
        return None

    @abstractmethod
    def state_dict(self) -> dict[str, Any]:
        """Everything in flight, so that a resumed engine continues bit for bit (weights are loaded separately)."""

    @abstractmethod
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


class AbstractEngineAround(AbstractEngine):
    """An engine around another: whatever a subclass does not define comes from the inner engine."""

    inner: AbstractEngine

    @property
    def version(self) -> int:
        return self.inner.version

    @property
    def tolerance(self) -> float:
        return self.inner.tolerance

    @property
    def computed(self) -> int | None:
        return self.inner.computed

    @property
    def in_flight(self) -> int:
        return self.inner.in_flight

    def submit(self, request: Request) -> None:
        self.inner.submit(request)

    def extend(self, request: Request, rollout: Rollout, told: Sequence[int] = (), *, first: int | None = None) -> None:
        self.inner.extend(request, rollout, told, first=first)

    def hidden(self, rollouts: Sequence[Rollout], at: int) -> Float[Tensor, "N H"]:
        return self.inner.hidden(rollouts, at)

    def step(self) -> list[Finished]:
        return self.inner.step()

    def cancel(self, key: tuple[int, int]) -> Rollout | Drop | None:
        return self.inner.cancel(key)

    def partial_rollouts(self) -> list[Finished]:
        return self.inner.partial_rollouts()

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self.inner.load(version, state)

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        return self.inner.score(rollout)

    def witness(self, version: int, canary: Sequence[Rollout]) -> list[Witness]:
        return self.inner.witness(version, canary)

    @property
    def form(self) -> Form | None:
        return self.inner.form

    def manifest(self, tensors: Mapping[str, Tensor]) -> Prints | None:
        return self.inner.manifest(tensors)

    def reading(self) -> Reading | None:
        return self.inner.reading()

    def heard(self, *, wait: bool) -> list[Receipt]:
        return self.inner.heard(wait=wait)

    @property
    def separate(self) -> Mapping[str, AbstractEngine]:
        return self.inner.separate

    def metrics(self) -> Mapping[str, float]:
        return self.inner.metrics()

    def rest(self) -> None:
        self.inner.rest()

    def close(self) -> None:
        self.inner.close()

    def state_dict(self) -> dict[str, Any]:
        return {"inner": self.inner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.inner.load_state_dict(state["inner"])


class AbstractEngineWithoutWeights(AbstractEngine):
    """An engine that computes nothing: it accepts any weights, and only counts their versions."""

    def __init__(self) -> None:
        self._version = -1

    @property
    def version(self) -> int:
        return self._version

    @property
    def tolerance(self) -> float:
        return math.inf

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        self._version = version

    def score(self, rollout: Rollout) -> Float[Tensor, " S"]:
        return rollout.behavior_S


# Rollouts in progress at a time in one engine; each is a row of every forward pass, allocated at the start.
MOST_SLOTS = 65_536


def check_slots(slots: int) -> None:
    if not 1 <= slots <= MOST_SLOTS:
        raise ValueError(
            f"engine.slots is {slots}; it must be between 1 and {MOST_SLOTS:,}, the rollouts sampled in parallel"
        )


def overtaken(cache: str, whole: Composition) -> Iterator[Verdict]:
    """Advice on an engine's ``cache`` where the anchor needs each decision's exact distribution."""
    if cache == "keep" and whole.doing(AT_SAMPLING) and whole.run.max_staleness > 0:
        yield Advice(
            "the anchor evaluates each decision by its own version, but after a load unfinished rollouts continue with keys and values "
            'of older weights, which then counts as discrepancy (up to 1.3 nats on gimbal-tiny): engine.cache="recompute"'
        )


class AbstractSampler(ABC):
    """What a runtime starts to sample rollouts: an engine, or an engine with the workflow that drives it."""

    @property
    def whole(self) -> bool:
        """Whether the requests of a group must reach the same engine, and at once: it is driven as one attempt."""
        return False

    @abstractmethod
    def start(self, policy: AbstractPolicy) -> AbstractEngine:
        """A live engine for the policy's architecture; it has no weights before the first ``load``."""


class AbstractEngineSpec(AbstractPart, AbstractSampler):
    """The saved, frozen configuration of an engine; ``can`` states what a workflow may request."""

    @property
    def can(self) -> frozenset[str]:
        return frozenset({DRAW})


def drained(engine: AbstractEngine) -> dict[tuple[int, int], Finished]:
    """Samples everything in flight to its end; results by key."""
    finished: dict[tuple[int, int], Finished] = {}
    while engine.in_flight:
        finished |= {item.key: item for item in engine.step()}
    return finished
