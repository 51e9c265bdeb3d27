"""The nouns: what travels from the engine through the dataflow to the learner.

Shapes, everywhere in gimbal: ``N`` rollouts, ``S`` decisions of a rollout (padded), ``G`` rollouts of one group, ``V`` vocabulary,
``A`` action dimension. A tensor's name ends in its shape: ``reward_N``, ``logprob_NS``. A *decision* is a token, an action or a
denoising step.

Four log-probabilities of the same sampled decisions have four names: ``logprob_NS`` (the policy being trained, now, with gradient),
``proximal_NS`` (the anchor of the trust region), ``behavior_NS`` (the engine that sampled, of the distribution it sampled from),
``reference_NS`` (a frozen reference).

Everything here is frozen; a stage that adds a column returns a new record (``dataclasses.replace``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal.chats import is_chat, spoken

LEAST_TEMPERATURE, MOST_TEMPERATURE, MOST_LENGTH = 0.001, 1000.0, 10_000_000  # beyond, logits overflow; longest context
VISIT = "visit"  # column of a task: how many times it was given out before, where a curriculum gives it out again
Fault = Literal["provider", "tool", "sandbox", "environment", "agent"]  # what broke; never the policy's doing
Lateness = bool | Literal["setup"]  # whether what broke is that a deadline passed; "setup": that of its beginning
GRADIENT = {"gradient": True}  # marks a column that carries gradient


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: a prompt to answer, or an environment to act in.

    ``id`` is stable across runs (resume, replay and random numbers depend on it). ``columns``: the row's other ones, read by rewards.
    """

    id: str
    prompt: str = ""
    answer: str | None = None
    source: str = ""
    seed: int = 0
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def asked(self) -> str:
        """The prompt as a person reads it: its text, or the messages of a chat, each after its role, with the calls of tools."""
        messages = self.columns.get("messages", ())
        if self.prompt or not is_chat(messages):
            return self.prompt
        return "\n".join(f"{message['role']}: {spoken(message)}" for message in messages)


@dataclass(frozen=True, kw_only=True)
class AbstractSampling(ABC):
    """How decisions are sampled, as shared by all families; each family's class adds its own settings.

    ``temperature`` 0 is greedy. ``behavior`` log-probabilities refer to exactly this distribution.
    """

    temperature: float = 1.0
    max_length: int = 64  # maximum decisions per rollout

    def __post_init__(self) -> None:
        if self.temperature != 0 and not LEAST_TEMPERATURE <= self.temperature <= MOST_TEMPERATURE:
            raise ValueError(
                f"temperature is {self.temperature}; it must be 0 (greedy), or between {LEAST_TEMPERATURE} and {MOST_TEMPERATURE}"
            )
        if not 1 <= self.max_length <= MOST_LENGTH:
            raise ValueError(f"max_length is {self.max_length:,}; it must be from 1 to {MOST_LENGTH:,} decisions")

    @property
    @abstractmethod
    def full(self) -> bool:
        """Whether every decision can be sampled: the trainer cannot evaluate a truncated support."""

    @property
    def trainable(self) -> bool:
        """Whether the trainer can evaluate the same distribution: full support and a temperature above 0."""
        return self.temperature > 0 and self.full


class AbstractDecisions(ABC):
    """What N rollouts saw and chose: the only family-specific record. Engines make it; policies and critics read it."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(N, S)."""

    @property
    @abstractmethod
    def cost_N(self) -> Int[Tensor, " N"]:
        """Positions the forward pass of each row takes (prompt included): what micro-batches are measured in."""

    @property
    def extent(self) -> tuple[int, int]:
        """Sequences of a forward pass in which each row is one, and the positions of each."""
        return len(self.cost_N), int(self.cost_N.max())

    @property
    def label_NS(self) -> Int[Tensor, "N S"] | None:
        """An integer for each decision: the token, or one for each pair of observation and action; None in a family that has none."""
        return None

    @abstractmethod
    def select(self, rows: Int[Tensor, " M"]) -> AbstractDecisions:
        """These rows, trimmed to the longest among them."""

    @classmethod
    @abstractmethod
    def stack(cls, items: Sequence[AbstractDecisions]) -> AbstractDecisions:
        """All rows of all items in order, padded to the longest."""

    @abstractmethod
    def to(self, device: torch.device) -> AbstractDecisions: ...

    def each(self) -> tuple[AbstractDecisions, Bool[Tensor, "N S"]]:
        """Every decision as its own row (its state and its outcome), and their positions, excluding padding."""
        raise ValueError(f"{type(self).__name__} is not cut into decisions: keep whole rollouts, store='Buffer()'")


class Part(IntEnum):
    """What a decision belongs to. Only observations are not the policy's own, and ``mask`` is False there."""

    RESPONSE = 0
    CONTROL = 1  # chooses a mode or a tool, not content
    OBSERVATION = 2  # output of the environment or a tool
    LATENT = 3  # a continuous vector between tokens


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """One sampled sequence of S decisions, with what the engine recorded for each.

    ``mask_S`` is False on decisions the policy did not sample (tool output, forced tokens). ``reward_S`` is the dense reward of an
    environment (zeros for text), with what another sample was paid before this one split off; ``cost_S`` what it says they cost.
    ``part_S`` holds ``Part`` codes and ``turn_S`` counts turns (or chunks, or steps) from 0; None is one response in one turn. ``fork``
    is (the lower sample of its group whose last row it split off, the number of decisions taken over), None if it began at the prompt;
    with its own sample, it split off the previous row of its episode. Rewards set ``score``, which the rows of an episode share; None:
    not yet. ``stop``: ``stop`` (end of text, string), ``length``, ``terminated``, ``truncated``, ``paused``, ``cancelled``, ``error``.
    """

    task: Task
    sample: int  # index within the group
    decisions: AbstractDecisions  # N = 1
    behavior_S: Float[Tensor, " S"]
    version_S: Int[Tensor, " S"]
    mask_S: Bool[Tensor, " S"]
    reward_S: Float[Tensor, " S"]
    stop: str
    sampling: AbstractSampling
    text: str = ""
    cost_S: Float[Tensor, " S"] | None = None
    entropy_S: Float[Tensor, " S"] | None = None
    rival_S: Int[Tensor, " S"] | None = None  # the likeliest other token that does not end the text
    rival_logprob_S: Float[Tensor, " S"] | None = None
    state_H: Float[Tensor, " H"] | None = None  # a hidden state that its workflow read
    part_S: Int[Tensor, " S"] | None = None
    turn_S: Int[Tensor, " S"] | None = None
    fork: tuple[int, int] | None = None
    row: int = 0  # its index within the episode
    given: int = 0  # how many of its decisions, the first ones, its task gave: nobody drew them
    role: str = ""  # the actor, where there are several
    inclusion: float = 1.0  # the probability that it was kept, if its sampler drops rows at random
    score: float | None = None
    scores: Mapping[str, float] = field(default_factory=dict)  # by reward name, before weighting

    @property
    def length(self) -> int:
        return int(self.behavior_S.shape[0])

    @property
    def drawn(self) -> int:
        """Its decisions minus those that its task gave, or that another rollout sampled before it split off."""
        return self.length - (self.fork[1] if self.fork else self.given)

    @property
    def earned(self) -> float:
        """Its score, if it has one, and the sum of its dense rewards."""
        return (self.score or 0.0) + float(self.reward_S.sum())

    @property
    def oldest(self) -> int:
        """The version of the weights that sampled its oldest decision."""
        return int(self.version_S.min())

    def validate(self) -> None:
        """Every per-decision column has the length of the rollout, and every sampled decision a finite log-probability."""
        for name, column in vars(self).items():
            if name.endswith("_S") and column is not None:
                assert column.shape == self.behavior_S.shape, (name, column.shape, self.length)
        assert self.length > 0, "a rollout holds at least one decision"
        assert self.fork is None or (self.fork[0] <= self.sample and 0 < self.fork[1] < self.length), self.fork
        assert bool(torch.isfinite(self.behavior_S[self.mask_S]).all()), "behavior log-probability is not finite"


class Acted(NamedTuple):
    """One step of an environment: the turn it answered, its calls, how many of them failed, and their seconds."""

    turn: int
    calls: int
    failed: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One attempt at a task: one or more rows (a rewritten context, a sub-agent's, a branch), which share its score.

    Statistics count episodes, never rows: a long one cut into many rows must not count more. Rewards read the text of the last row.
    ``error`` states what broke in its environment, "" if nothing did; such an episode is neither a success nor a failure, and leaves
    its group. ``origin`` is "" if it was sampled for its group, else its store's label.
    """

    rows: tuple[Rollout, ...]
    error: str = ""
    origin: str = ""
    apart: bool = False  # its rows are of agents that act at once: in training each of them is an episode
    spent: int = 0  # decisions sampled for it that are in none of its rows, minus those of its rows that were forced
    acts: tuple[Acted, ...] | None = None  # by step of its environment
    fault: Fault = "environment"  # whose fault the error is
    late: Lateness = False  # the error is a missed deadline

    def __post_init__(self) -> None:
        assert self.rows, "an episode holds at least one row"
        own = {(row.task.id, row.sample, row.score) for row in self.rows}
        assert len(own) == 1, "rows of several episodes"

    @classmethod
    def of(cls, rollout: Rollout) -> Episode:
        """The episode of one row."""
        return cls(rows=(rollout,))

    @property
    def last(self) -> Rollout:
        return self.rows[-1]

    @property
    def task(self) -> Task:
        return self.last.task

    @property
    def sample(self) -> int:
        return self.last.sample

    @property
    def stop(self) -> str:
        return self.last.stop

    @property
    def text(self) -> str:
        return self.last.text

    @property
    def score(self) -> float | None:
        return self.last.score

    @property
    def scores(self) -> Mapping[str, float]:
        return self.last.scores

    @cached_property
    def paid(self) -> float:
        """The dense rewards of its rows: what its environment paid."""
        return sum(float(row.reward_S.sum()) for row in self.rows)

    @property
    def earned(self) -> float:
        """Its return, as it is trained on: its score, if it has one, and what it was ``paid``."""
        return (self.score or 0.0) + self.paid

    @property
    def length(self) -> int:
        """Its decisions without given ones; those that a row shares with the row before it count once."""
        return sum(r.drawn if r.fork and r.fork[0] == r.sample else r.length - r.given for r in self.rows)

    @property
    def drawn(self) -> int:
        """As ``length``, minus what other episodes sampled before it split off, plus what was ``spent`` on it."""
        return sum(row.drawn for row in self.rows) + self.spent

    @property
    def oldest(self) -> int:
        return min(row.oldest for row in self.rows)

    def map(self, change: Callable[[Rollout], Rollout]) -> Episode:
        return replace(self, rows=tuple(change(row) for row in self.rows))

    def scored(self, score: float, scores: Mapping[str, float]) -> Episode:
        return self.map(lambda row: replace(row, score=score, scores=scores))


@dataclass(frozen=True, kw_only=True)
class Group:
    """The G episodes of one task whose rewards are compared. ``index`` is the order of dispatch."""

    index: int
    task: Task
    episodes: tuple[Episode, ...]
    replies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # to a reward's follow-ups, by its name

    @classmethod
    def of(cls, index: int, task: Task, rollouts: Iterable[Rollout]) -> Group:
        """A group of episodes of one row each."""
        return cls(index=index, task=task, episodes=tuple(map(Episode.of, rollouts)))

    @property
    def rollouts(self) -> tuple[Rollout, ...]:
        """One row per episode, its last. Rewards and statistics read it."""
        return tuple(episode.last for episode in self.episodes)

    @property
    def rows(self) -> tuple[Rollout, ...]:
        """All rows of all episodes: what the learner sees."""
        return tuple(row for episode in self.episodes for row in episode.rows)

    @property
    def oldest(self) -> int:
        return min(episode.oldest for episode in self.episodes)

    @property
    def score_G(self) -> Float[Tensor, " G"]:
        return torch.tensor([episode.earned for episode in self.episodes], dtype=torch.float32)

    def keep(self, rollouts: Iterable[Rollout]) -> Group:
        """The group with only these of its ``rollouts``; each replaces the last row of its episode, and its score."""
        whole = {episode.sample: episode for episode in self.episodes}

        def kept(last: Rollout) -> Episode:
            before = (replace(row, score=last.score, scores=last.scores) for row in whole[last.sample].rows[:-1])
            return replace(whole[last.sample], rows=(*before, last))

        return replace(self, episodes=tuple(map(kept, rollouts)))


@dataclass(frozen=True)
class Drop:
    """A group that must not train, or a sample that did not become an episode, and why. Every drop is counted under its reason."""

    reason: str
    drawn: int = 0  # decisions that a sample cost before it was dropped
    said: str = ""  # what happened, where the user should know
    task: str = ""  # the id of its task, if that may not be its group's


@dataclass(frozen=True, kw_only=True)
class TrainBatch:
    """Rows the learner sees; every column after the mask is optional, so another loop can fill only what a method reads.

    ``mask_NS`` marks decisions that count: in statistics and, unless a mask of the method narrows it, in the loss. The learner fills
    columns that carry gradient (``entropy_NS``, ``new_value_NS``, ``new_value_NSM``, and the facts that ``live`` names) just before an
    objective that ``needs`` them is called; all others are constants. ``facts`` holds other values by name, [N], [N, S] or [N, S, ...]:
    ``score/NAME`` of each reward before weighting, ``truncated`` (1 where the length ran out), ``temperature`` (of sampling),
    ``inclusion``, ``reference/NAME``, and what surveys found.
    """

    mask_NS: Bool[Tensor, "N S"]
    behavior_NS: Float[Tensor, "N S"] | None = None
    proximal_NS: Float[Tensor, "N S"] | None = None
    reference_NS: Float[Tensor, "N S"] | None = None
    advantage_NS: Float[Tensor, "N S"] | None = None
    reward_NS: Float[Tensor, "N S"] | None = None  # dense reward; a rollout's score sits on its last decision
    version_NS: Int[Tensor, "N S"] | None = None
    part_NS: Int[Tensor, "N S"] | None = None
    turn_NS: Int[Tensor, "N S"] | None = None
    group_N: Int[Tensor, " N"] | None = None
    sample_N: Int[Tensor, " N"] | None = None  # index within the group
    episode_N: Int[Tensor, " N"] | None = None  # rows with the same label are one attempt, and share its score
    parent_N: Int[Tensor, " N"] | None = None  # the row that it split off from, -1 if it began at the prompt
    fork_N: Int[Tensor, " N"] | None = None  # how many of its first decisions are that row's; they are masked here
    role_N: Int[Tensor, " N"] | None = None  # who acted: a place in ``roles``
    current_NS: Float[Tensor, "N S"] | None = None  # by the policy at the start of this minibatch, without gradient
    hidden_NSH: Float[Tensor, "N S H"] | None = None  # last hidden state, from which the decision was sampled
    score_norm_N: Float[Tensor, " N"] | None = None  # norm of the gradient of the row's summed log-probability
    value_NS: Float[Tensor, "N S"] | None = None  # critic's estimate at each decision, before the update
    bootstrap_N: Float[Tensor, " N"] | None = None  # the same after the last decision; 0 where the episode ended
    target_NS: Float[Tensor, "N S"] | None = None  # what the critic learns to predict
    entropy_NS: Float[Tensor, "N S"] | None = field(default=None, metadata=GRADIENT)
    new_value_NS: Float[Tensor, "N S"] | None = field(default=None, metadata=GRADIENT)
    value_NSM: Float[Tensor, "N S M"] | None = None  # value_NS of each member of the critic
    new_value_NSM: Float[Tensor, "N S M"] | None = field(default=None, metadata=GRADIENT)  # new_value_NS of each member
    row_N: Int[Tensor, " N"] | None = None  # where a row stood before rows were re-ordered
    roles: tuple[str, ...] = ()
    facts: Mapping[str, Tensor] = field(default_factory=dict)
    live: frozenset[str] = frozenset()
    decisions: AbstractDecisions | None = None

    @property
    def several(self) -> bool:
        """Whether an episode has more rows than one."""
        return self.episode_N is not None and len(self.episode_N.unique()) < len(self.episode_N)

    @property
    def shape(self) -> tuple[int, int]:
        return self.mask_NS.shape[0], self.mask_NS.shape[1]

    @cached_property
    def full(self) -> bool:
        """Whether every decision of every row counts, asked on a CPU alone: a device would have to be waited for."""
        return self.mask_NS.is_cpu and bool(self.mask_NS.all())

    @property
    def parts_NS(self) -> Int[Tensor, "N S"]:
        """``part_NS``, or all response."""
        return torch.zeros_like(self.mask_NS, dtype=torch.long) if self.part_NS is None else self.part_NS

    @property
    def turns_NS(self) -> Int[Tensor, "N S"]:
        """``turn_NS``, or all of turn 0."""
        return torch.zeros_like(self.mask_NS, dtype=torch.long) if self.turn_NS is None else self.turn_NS

    @property
    def scores(self) -> dict[str, Float[Tensor, " N"]]:
        """The scores of each reward on each row, by the reward's name."""
        return {name[6:]: value for name, value in self.facts.items() if name.startswith("score/")}

    def column(self, name: str, reader: object) -> Tensor:
        """The named column as a method reads it, or a ValueError that names the reader.

        A column is a field of this record or one of its ``facts``. A floating [N, S] or [N, S, H] column is 0 where the mask is
        False, in at least float32, and a constant unless it is one of those that carry gradient. So methods are safe from
        padding, low precision and a forgotten detach.
        """
        value = self.facts[name] if name in self.facts else getattr(self, name, None)
        if value is None:
            raise ValueError(
                f"{type(reader).__name__} reads {name}, which this batch does not carry; fill it (TrainBatch({name}=...)) "
                "or use a recipe whose learner does"
            )
        if value.ndim >= 2 and value.is_floating_point():
            value = value if name in self.live or name in CARRY_GRADIENT else value.detach()
            if not self.full:
                value = torch.where(self.mask_NS if value.ndim == 2 else self.mask_NS[..., None], value, 0)
            value = value.to(torch.promote_types(value.dtype, torch.float32))
        return value

    @property
    def return_N(self) -> Float[Tensor, " N"]:
        """The undiscounted sum of each row's rewards, which is that of its episode: see ``pack``."""
        return self.column("reward_NS", self).sum(-1)

    def select(self, rows: Int[Tensor, " M"]) -> TrainBatch:
        """These rows, every [N, S, ...] column trimmed to the longest of them. A row whose parent is not among them has none."""
        rows = rows.to(self.mask_NS.device)
        decisions = None if self.decisions is None else self.decisions.select(rows)
        if decisions is not None:
            longest = decisions.shape[1]
        else:
            any_S = (self.mask_NS | (self.parts_NS == Part.OBSERVATION))[rows].any(0).nonzero()
            longest = int(any_S[-1]) + 1 if len(any_S) else 1

        def pick(value: Tensor) -> Tensor:
            # A fact of another second size, such as [N, copies, D], is whole. An index in brackets takes three times as long.
            return (value[:, :longest] if value.shape[1:2] == self.shape[1:2] else value).index_select(0, rows)

        columns: dict[str, Any] = {"decisions": decisions, "facts": {key: pick(x) for key, x in self.facts.items()}}
        columns |= {name: pick(x) for name in COLUMNS if isinstance(x := getattr(self, name), Tensor)}
        if self.parent_N is not None:
            place_P = self.parent_N.new_full((self.shape[0] + 1,), -1)  # the last for rows that have no parent
            place_P[rows] = torch.arange(len(rows), device=rows.device)
            columns["parent_N"] = place_P[columns["parent_N"]]
        return replace(self, **columns)

    def with_columns(self, columns: Mapping[str, Tensor]) -> TrainBatch:
        """With these columns filled, each a field of this record or else one of its facts; itself where there are none."""
        own = {name: value for name, value in columns.items() if name in COLUMNS}
        facts = {name: value for name, value in columns.items() if name not in COLUMNS}
        return replace(self, **own, facts={**self.facts, **facts}) if columns else self

    def evaluated(self, columns: Mapping[str, Tensor]) -> TrainBatch:
        """With these columns of a forward pass, which carry its gradient."""
        return replace(self.with_columns(columns), live=frozenset({*self.live, *columns})) if columns else self

    def to(self, device: torch.device) -> TrainBatch:
        own = {k: x.to(device) for k in COLUMNS if isinstance(x := getattr(self, k), Tensor | AbstractDecisions)}
        return replace(self, **own, facts={key: x.to(device) for key, x in self.facts.items()})


COLUMNS = tuple(item.name for item in fields(TrainBatch))  # computed once, not for each minibatch
CARRY_GRADIENT = frozenset(item.name for item in fields(TrainBatch) if item.metadata == GRADIENT)


@dataclass(frozen=True)
class Terms:
    """What an objective returns: the loss of each decision (minimised, not yet aggregated) and per-decision metrics.

    Every metric is a [N, S] tensor whose masked mean over the global minibatch is logged under its name.
    """

    loss_NS: Float[Tensor, "N S"]
    metrics: Mapping[str, Tensor] = field(default_factory=dict)
