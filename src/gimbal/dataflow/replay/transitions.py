"""Single decisions of any age, each with what it was taken in and what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gimbal.composition import TELLS_ERRORS, Composition, Refusal, Verdict
from gimbal.dataflow.replay.base import AbstractStore, AbstractStoreSpec, Judge
from gimbal.dataflow.replay.hindsight import Hindsight, Relabelling
from gimbal.dataflow.replay.mapped import room
from gimbal.dataflow.replay.paths import paths, unread_path
from gimbal.dataflow.replay.preferences import AbstractPriority, Uniform
from gimbal.dataflow.replay.recorded import recorded, unlike
from gimbal.dataflow.staleness import MaskStale
from gimbal.environments.minari import Minari
from gimbal.ops import philox, stable_hash
from gimbal.policies.control import Steps
from gimbal.records import AbstractDecisions, Group, TrainBatch

WHOLE = frozenset({"turn_NS"})  # says nothing of a decision alone, as do all columns of whole rows
HALF = 0.5  # of a minibatch: symmetric sampling
MOVE = "replay/move"  # fact [N]: the number, over the whole run, of the move of the weights that a row is drawn for
FRESH = -1  # in its place: the row has just come in, and is not drawn for any
AHEAD = "replay/ahead"  # fact [N, S, n]: the rewards of the n steps that begin with this one, nan behind the last that is known
# Fact [N, S, p, A + O + 2]: action, what was observed next, reward and end of p consecutive steps; nan behind the last.
PATH = "replay/path"
PLACE = "replay/place"  # fact [N]: where a row lies, for a preference that goes by errors
IMPORTANCE = "replay/importance"  # fact [N, S]: what it counts in a loss of values, for the same
LEAST = 1024  # rows that there is room for at first


@dataclass(frozen=True, kw_only=True)
class Transitions(AbstractStoreSpec):
    """Keeps the last ``capacity`` decisions. For each that comes in the weights move ``update_to_data`` times, each time by
    ``minibatch`` of those that are held, which ``preference`` draws: any as likely as any other, newer ones likelier, or those whose
    values are furthest off (``replay/importance`` is then the mean weight that corrects the losses for it).

    The first ``learning_starts`` decisions move nothing. What is left of a fraction of a move is owed to the next step, over a resume
    too, and ``replay/update_to_data`` is what was measured: moves so far by decisions since then.

    With ``n`` above 1 a decision is drawn with the rewards of the n steps that begin with it, and with what was observed after the
    last of them; fewer where its row ends sooner (by a termination, a limit or the end of a segment), and the discount then counts the
    steps that there are.

    It gives up the bound on the age: what it holds was drawn by any version so far. So it is for updates that are off-policy.

    ``prior`` are recorded episodes of the same task. Of each minibatch, ``share`` (rounded up or down at random, so that its mean is
    right) is drawn from them, any as likely as any other, and the rest from what came in (RLPD, arXiv:2302.02948: half). ``share``
    None is the data's part of all that there is, as if they lay in the buffer from the start. Running statistics see only what comes
    in. ``replay/prior`` is the share that is drawn now.

    ``hindsight`` draws steps as if other goals had been wanted, those of ``prior`` too; its environment must have goals.

    With ``path`` above 1 a decision is drawn with the steps that follow it, so many in all and fewer where its row ends sooner, for a
    world that learns on its own rollouts (``ModelLearning``, ``Dyna``).

    ``disk`` is a directory in whose files the decisions are kept in place of memory, mapped, so that the system may put away what is
    seldom drawn. The files have room for ``capacity`` from the first decision on and no names, and end with the process; a checkpoint
    has a copy, which a resumed run reads back.

    - ``disk``: the same bits as in memory.
    - ``capacity`` = the decisions of one step, ``update_to_data`` = 1 / ``minibatch``: one move on what has just come in.
    - ``share`` = 0: the same bits as without ``prior``.
    """

    same_rows: ClassVar[bool] = False

    capacity: int = 100_000
    minibatch: int = 128
    update_to_data: float = 1.0
    learning_starts: int = 100
    n: int = 1
    path: int = 1
    preference: AbstractPriority = Uniform()
    prior: Minari | None = None
    share: float | None = HALF
    hindsight: Hindsight | None = None
    disk: str = ""

    def __post_init__(self) -> None:
        if min(self.capacity, self.minibatch, self.n, self.path) < 1 or self.learning_starts < 0:
            raise ValueError(
                f"Transitions has capacity {self.capacity}, minibatch {self.minibatch}, n {self.n}, path {self.path} and "
                f"learning_starts {self.learning_starts}; they count decisions, at least 1 (learning_starts: 0)"
            )
        if not 0 < self.update_to_data <= 1000:
            raise ValueError(
                f"Transitions.update_to_data is {self.update_to_data}; it is how often the weights move for each decision that comes "
                "in, above 0 and at most 1000"
            )
        if self.hindsight is not None and self.n > 1:
            raise ValueError(
                f"Transitions.n is {self.n}, which adds up rewards of steps that were paid for another goal than hindsight gives them: "
                "set store.n=1, or store.hindsight=none"
            )
        if self.path > self.capacity:
            raise ValueError(f"Transitions.path is {self.path}, and its capacity {self.capacity} steps: lower path")
        if self.hindsight is not None and self.path > 1:
            raise ValueError(
                f"Transitions.path is {self.path}, steps that want the goal of their episode, and hindsight gives their first another: "
                "set store.path=1, or store.hindsight=none"
            )
        if self.share is not None and not 0 <= self.share <= 1:
            raise ValueError(
                f"Transitions.share is {self.share}; it is the part of each minibatch that prior gives: from 0 to 1, or none, by size"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        learns = whole.run.learns
        if self.disk and not Path(self.disk).is_dir():
            yield Refusal(
                f"store.disk={self.disk} is not a directory: create it (a resumed run needs it too), or start a new run without it "
                "to keep decisions in memory"
            )
        if not learns.off_policy:
            yield Refusal(
                "Transitions cuts rollouts into single decisions, and this update learns from whole ones: store='Buffer()'"
            )
        elif whole.has(MaskStale):
            yield Refusal(
                "MaskStale masks what is older than max_staleness, which is most of what Transitions draws: staleness=Pace()"
            )
        elif learns.optimization.minibatches > 1 or learns.optimization.epochs > 1:
            yield Refusal(
                "Transitions says how often the weights move: store.update_to_data, and leave optimization.minibatches and epochs at 1"
            )
        elif self.preference.by_error and self.prior is not None:
            yield Refusal(
                f"{type(self.preference).__name__} draws by errors, and none are kept of what store.prior holds: "
                "store.preference='Uniform()', or leave store.prior out"
            )
        elif self.preference.by_error and TELLS_ERRORS not in learns.effects():
            yield Refusal(
                f"{type(self.preference).__name__} draws by errors, and {type(learns).__name__} tells none of its values: "
                "store.preference='Uniform()', or begin with sac, td3, dqn or dsrl"
            )
        elif unread := unread_path(self.path, learns):
            yield Refusal(f"{unread} (n-step targets: store.n), or begin with pets or mbpo")
        elif self.prior is not None:
            yield from unlike(self.prior, whole)
        elif self.share != HALF:
            yield Refusal(
                f"store.share is {self.share}, the part of each minibatch that store.prior gives, and there is none: set "
                "store.prior='Minari(dataset=...)', or leave store.share out"
            )

    def most_age(self, max_staleness: int) -> None:
        return None

    def start(self, seed: int) -> Ring:
        return Ring(self, seed)

    def worth(self, entered: int) -> int:
        """How many moves so many decisions are worth."""
        return int(self.update_to_data * max(0, entered - self.learning_starts) + 1e-9)


class Ring(AbstractStore):
    """The rows, each in its place until a newer one takes it."""

    def __init__(self, spec: Transitions, seed: int) -> None:
        self.spec, self.seed = spec, seed
        self.rows: TrainBatch | None = None  # places, of which the first ``held`` are taken
        # Whether the next place holds the next decision of the same row.
        self.goes_on_P = torch.zeros(0, dtype=torch.bool)
        self.held = self.entered = self.moves = self.taken = 0
        self.error_P = torch.zeros(0)  # of each place, where the preference goes by them
        self.importance = math.nan  # mean, of this step's rows
        self.version = 0  # of the learner
        self.prior: Ring | None = None
        self.relabelling: Relabelling | None = None
        self.unlike = 0  # of all that came in, what hindsight would have paid otherwise
        self.relabelled = math.nan  # the share of this step's rows with another reward

    def join(self, groups: Sequence[Group], version: int, judge: Judge) -> list[Group]:
        self.version = version
        if self.spec.hindsight is not None and self.relabelling is None and groups:
            self.relabelling = self.spec.hindsight.start(groups[0].task.source)
        return list(groups)

    def take(self, fresh: TrainBatch) -> TrainBatch:
        new, goes_on_K = each(fresh)
        self._enter(new, goes_on_K)
        self.taken, self.importance, self.relabelled = self.taken + 1, math.nan, math.nan
        due = self.spec.worth(self.entered) - self.moves
        new = _for_move(new, torch.full((new.shape[0],), FRESH))
        if self.spec.preference.by_error:
            new = new.with_columns({PLACE: new.facts[MOVE]})
        if due <= 0:
            return new
        if (share := self._share() * self.spec.minibatch) % 1:  # what one minibatch rounds away, others make up for
            share += philox("share", self.seed, self.taken).random()
        share = math.floor(share)
        rows = _for_move(*self._minibatches(due, self.spec.minibatch - share))
        if share:
            rows = _ordered(joined(rows, self._recorded(due, share)))
        self.moves += due
        return joined(rows, new)

    def _minibatches(self, due: int, each_has: int) -> tuple[TrainBatch, Int[Tensor, " K"]]:
        """So many rows for each move that is due, and the numbers of these moves."""
        number_K = torch.arange(self.moves, self.moves + due).repeat_interleave(each_has)
        place_K, ratio_K = self._drawn(due * each_has)
        rows, preference = self._with_goals(self._at(place_K), place_K), self.spec.preference
        if preference.by_error:
            importance_MK = preference.importance(ratio_K.reshape(due, each_has))
            self.importance = float(importance_MK.mean())
            importance_K1 = torch.from_numpy(importance_MK.astype(np.float32)).reshape(-1, 1)
            rows = rows.with_columns({PLACE: place_K, IMPORTANCE: importance_K1})
        return rows, number_K

    def _share(self) -> float:
        """The part of a minibatch that comes from the data, on average."""
        spec = self.spec
        if spec.prior is None or spec.share == 0:
            return 0.0
        if self.prior is None:  # read again where the run goes on; its digests say whether the data are the same
            rows, goes_on_K = recorded(spec.prior.recording)
            own = replace(spec, capacity=rows.shape[0], prior=None, preference=Uniform())
            self.prior = Ring(own, stable_hash("prior", self.seed))
            self.prior.relabelling = self.relabelling
            self.prior._enter(rows, goes_on_K)
        return self.prior.held / (self.prior.held + self.held) if spec.share is None else spec.share

    def _recorded(self, due: int, share: int) -> TrainBatch:
        """Their rows of the moves that are due. They are of no version: what was recorded before the run is never old."""
        prior = self.prior
        assert prior is not None
        prior.moves, prior.taken = self.moves, self.taken
        rows = _for_move(*prior._minibatches(due, share))
        return rows.with_columns({"version_NS": torch.full_like(rows.column("version_NS", self), self.version)})

    def _drawn(self, count: int) -> tuple[Int[Tensor, " K"], Float[np.ndarray, " K"]]:
        """Places, each drawn by itself, and how many times likelier than by chance each was."""
        generator = philox("transitions", self.seed, self.taken)
        error_A = None
        if self.spec.preference.by_error:
            error_A = self.error_P[(self.entered - 1 - torch.arange(self.held)) % self.spec.capacity].double().numpy()
        weight_A, ratio_K = self.spec.preference.weights(self.held, error_A), np.ones(count)
        if weight_A is None:
            age_K = generator.integers(self.held, size=count)
        else:
            sum_A = np.cumsum(weight_A)
            age_K = np.searchsorted(sum_A, generator.random(count) * sum_A[-1], side="right").clip(max=self.held - 1)
            ratio_K = weight_A[age_K] * (self.held / sum_A[-1])
        return torch.from_numpy((self.entered - 1 - age_K) % self.spec.capacity), ratio_K

    def learned(self, batch: TrainBatch, errors: Callable[[TrainBatch], Float[Tensor, " N"]]) -> None:
        place_N = batch.facts.get(PLACE)
        if place_N is not None and int(place_N[0]) != FRESH:
            self.error_P[place_N.cpu()] = errors(batch).float().cpu()

    def _at(self, place_K: Int[Tensor, " K"]) -> TrainBatch:
        """The rows at these places, each with the rewards of up to n steps and the observation behind the last of them."""
        rows = self.rows
        assert rows is not None
        if self.spec.n == 1:
            found = _map(lambda x: x[place_K], rows)
            if self.spec.path == 1:
                return found
            path_K1pF = paths(rows, self.goes_on_P, place_K, self.spec.path, self.spec.capacity)
            return found.with_columns({PATH: path_K1pF})
        reward_P = rows.column("reward_NS", self)[:, 0]
        ahead, last_K, place = [reward_P[place_K]], place_K, place_K
        for _ in range(self.spec.n - 1):
            place = torch.where((place >= 0) & self.goes_on_P[place], (place + 1) % self.spec.capacity, -1)
            ahead.append(torch.where(place >= 0, reward_P[place], torch.nan))
            last_K = torch.where(place >= 0, place, last_K)
        found = _map(lambda x: x[place_K], rows)
        steps, every = found.decisions, rows.decisions
        assert isinstance(steps, Steps) and isinstance(every, Steps), "decisions that are cut are steps of environments"
        decisions = replace(steps, final_NO=every.final_NO[last_K], terminated_N=every.terminated_N[last_K])
        return replace(found, decisions=decisions, facts={**found.facts, AHEAD: torch.stack(ahead, -1)[:, None]})

    def _with_goals(self, rows: TrainBatch, place_K: Int[Tensor, " K"]) -> TrainBatch:
        """The rows at these places as hindsight would have them."""
        hindsight = self.spec.hindsight
        if hindsight is None or not hindsight.goals:
            return rows
        assert self.rows is not None and self.relabelling is not None, "what is drawn came in with the groups of a step"
        oldest, capacity = self.entered - self.held, self.spec.capacity
        in_order_A = (oldest + torch.arange(self.held)) % capacity
        last_E = (~self.goes_on_P[in_order_A]).nonzero()[:, 0].numpy()  # the newest is the last of its episode
        generator = philox("hindsight", self.seed, self.taken)
        given_K, from_K = self.relabelling.chosen(generator, ((place_K - oldest) % capacity).numpy(), last_E)
        every = self.rows.decisions
        assert isinstance(every, Steps)
        reached_KG = every.final_NO[in_order_A[torch.from_numpy(from_K)]][:, self.relabelling.goals.achieved]
        found = self.relabelling(rows, given_K, reached_KG)
        self.relabelled = float((found.column("reward_NS", self) != rows.column("reward_NS", self)).float().mean())
        return found

    def _enter(self, new: TrainBatch, goes_on_K: Bool[Tensor, " K"]) -> None:
        count, capacity = new.shape[0], self.spec.capacity
        kept = slice(max(0, count - capacity), None)  # of a step that is larger than all there is room for
        place_K = ((self.entered + torch.arange(count)) % capacity)[kept]
        self.entered += count
        if self.relabelling is not None:
            self.unlike += self.relabelling.unlike(new)
            self.relabelling.check(self.unlike, self.entered)
        self._grow(new, min(self.entered, capacity))
        assert self.rows is not None
        _write(self.rows, place_K, _map(lambda x: x[kept], new))
        # The place before the first of these holds the last decision of a row: what is written over was nobody's next but those'.
        self.goes_on_P[place_K] = goes_on_K[kept]
        if self.spec.preference.by_error:
            self.error_P[place_K] = self.error_P[: self.held].max() if self.held else 1.0
        self.held = min(self.entered, capacity)

    def _grow(self, like: TrainBatch, wanted: int) -> None:
        """Room for so many rows, twice as much whenever there is too little."""
        there = 0 if self.rows is None else self.rows.shape[0]
        if wanted <= there:
            return
        size = min(self.spec.capacity, max(LEAST, 2 * there, wanted))
        self._widen(_map(lambda x: x[:0], like) if self.rows is None else self.rows, size)

    def _widen(self, rows: TrainBatch, size: int) -> None:
        """These rows with room for so many; a file has room for all from the first."""
        size = self.spec.capacity if self.spec.disk else size
        self.rows = _map(lambda x: room(x, size, self.spec.disk), rows)
        self.goes_on_P = room(self.goes_on_P, size, "")
        if self.spec.preference.by_error:
            self.error_P = room(self.error_P, size, "")

    def metrics(self) -> dict[str, float]:
        since = max(0, self.entered - self.spec.learning_starts)
        told = {"replay/held": float(self.held), "replay/moves": float(self.moves)}
        if self.spec.prior is not None:
            told["replay/prior"] = self._share()
        if not math.isnan(self.importance):
            told["replay/importance"] = self.importance
        if self.relabelling is not None:
            told["replay/unlike"] = self.unlike / max(1, self.entered)
        if not math.isnan(self.relabelled):
            told["replay/relabelled"] = self.relabelled
        return told | ({"replay/update_to_data": self.moves / since} if since else {})

    def state_dict(self) -> dict[str, Any]:
        rows = None if self.rows is None else _map(lambda x: room(x[: self.held], self.held, self.spec.disk), self.rows)
        held = {} if rows is None else {**_tensors(rows), "facts": dict(rows.facts), "decisions": rows.decisions}
        counts = {"held": self.held, "entered": self.entered, "moves": self.moves, "taken": self.taken}
        errors = {"errors": self.error_P[: self.held].clone()} if self.spec.preference.by_error else {}
        unlike = {"unlike": self.unlike} if self.spec.hindsight is not None else {}
        return {"rows": held, "goes_on": self.goes_on_P[: self.held].clone(), **errors, **unlike, **counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["held"] > self.spec.capacity or (self.spec.capacity > state["held"] < state["entered"]):
            raise ValueError(
                f"the checkpoint holds {state['held']} of {state['entered']} decisions, and store.capacity is {self.spec.capacity}: "
                "continue with the capacity that it was saved with"
            )
        self.held, self.entered, self.moves, self.taken = (state[n] for n in ("held", "entered", "moves", "taken"))
        self.unlike = state.get("unlike", 0)
        self.rows = TrainBatch(**state["rows"]) if state["rows"] else None
        self.goes_on_P = state["goes_on"]
        if self.spec.preference.by_error:
            self.error_P = state["errors"]
        if self.spec.disk and self.rows is not None:
            self._widen(self.rows, self.spec.capacity)


def fresh(batch: TrainBatch) -> TrainBatch | None:
    """The rows that have just come in, in order: all, where no store marks replayed ones; None where none has."""
    if (number_N := batch.facts.get(MOVE)) is None:
        return batch
    row_K = (number_N == FRESH).nonzero()[:, 0]
    return batch.select(row_K) if len(row_K) else None


def each(batch: TrainBatch) -> tuple[TrainBatch, Bool[Tensor, " K"]]:
    """Every decision that counts as a row of its own, and whether the next of these is the very next of its rollout. What is of a
    whole rollout (its group, its place, its score) is left out."""
    assert batch.decisions is not None
    single, there_NS = batch.decisions.each()
    counted_C = batch.mask_NS[there_NS].nonzero()[:, 0]
    columns: dict[str, Any] = {
        name: x[there_NS][:, None] for name, x in _tensors(batch).items() if name not in WHOLE and x.ndim > 1
    }
    facts = {name: x[there_NS][:, None] for name, x in batch.facts.items() if x.ndim > 1}
    row_C = there_NS.nonzero()[counted_C, 0]
    goes_on_C = torch.zeros(len(counted_C), dtype=torch.bool)
    goes_on_C[:-1] = (row_C[1:] == row_C[:-1]) & (counted_C[1:] == counted_C[:-1] + 1)
    every = TrainBatch(**columns, facts=facts, decisions=single)
    return (every if batch.full else every.select(counted_C)), goes_on_C


def parted(batch: TrainBatch, rows: Sequence[Tensor]) -> Iterator[TrainBatch]:
    """The parts of these rows [M], one by one: where they can be, views of one copy in their order."""
    if _even(batch):
        yield from split(batch.select(torch.cat([*rows])), [len(row_M) for row_M in rows])
        return
    for row_M in rows:
        yield batch.select(row_M)


def split(batch: TrainBatch, counts: Sequence[int]) -> list[TrainBatch]:
    """Consecutive parts of so many rows. Of steps of environments in rows of one length they are views: to choose the rows of each
    part, column by column, takes as long as the forward pass of a small network."""
    if not _even(batch):
        return [batch.select(row_M) for row_M in torch.arange(batch.shape[0]).split([*counts])]
    assert batch.decisions is not None
    columns, facts, decisions = (
        {name: x.split([*counts]) for name, x in own.items()}
        for own in (_tensors(batch), batch.facts, _tensors(batch.decisions))
    )

    def part(number: int) -> TrainBatch:
        own: dict[str, Any] = {name: parts[number] for name, parts in columns.items()}
        own["facts"] = {name: parts[number] for name, parts in facts.items()}
        steps: Any = {name: parts[number] for name, parts in decisions.items()}
        return TrainBatch(**own, roles=batch.roles, live=batch.live, decisions=type(batch.decisions)(**steps))

    return [part(number) for number in range(len(counts))]


def _even(batch: TrainBatch) -> bool:
    """Whether any of its rows are those rows of each column: none is padded, and none has a parent."""
    alone = batch.parent_N is None or bool((batch.parent_N < 0).all())
    return alone and isinstance(batch.decisions, Steps) and batch.decisions.even


def joined(drawn: TrainBatch, new: TrainBatch) -> TrainBatch:
    """The rows of both. A fact that the new ones lack is nan there."""

    def beside(name: str, x: Tensor) -> Tensor:
        other = new.facts.get(name)
        return torch.cat([x, x.new_full((new.shape[0], *x.shape[1:]), torch.nan) if other is None else other])

    own, others = _tensors(drawn), _tensors(new)
    assert drawn.decisions is not None and new.decisions is not None
    columns: dict[str, Any] = {name: torch.cat([x, others[name]]) for name, x in own.items()}
    return TrainBatch(
        **columns,
        facts={name: beside(name, x) for name, x in drawn.facts.items()},
        decisions=type(drawn.decisions).stack([drawn.decisions, new.decisions]),
    )


def _ordered(batch: TrainBatch) -> TrainBatch:
    """The rows of each move together, in the order of the moves."""
    return batch.select(batch.facts[MOVE].argsort(stable=True))


def _for_move(batch: TrainBatch, number_N: Int[Tensor, " N"]) -> TrainBatch:
    return batch.with_columns({MOVE: number_N})


def _tensors(record: TrainBatch | AbstractDecisions) -> dict[str, Tensor]:
    found = {item.name: getattr(record, item.name) for item in fields(record)}  # pyrefly: ignore[bad-argument-type]
    return {name: x for name, x in found.items() if isinstance(x, Tensor)}


def _map(change: Any, batch: TrainBatch) -> TrainBatch:
    """With this made of every tensor of its rows."""
    assert batch.decisions is not None
    decisions = replace(batch.decisions, **{name: change(x) for name, x in _tensors(batch.decisions).items()})  # pyrefly: ignore
    columns: dict[str, Any] = {name: change(x) for name, x in _tensors(batch).items()}
    return TrainBatch(**columns, facts={name: change(x) for name, x in batch.facts.items()}, decisions=decisions)


def _write(rows: TrainBatch, place_K: Int[Tensor, " K"], new: TrainBatch) -> None:
    """Into these places; a fact that only one of the two has is refused by its name."""
    assert rows.decisions is not None and new.decisions is not None
    pairs = [
        (_tensors(rows), _tensors(new)),
        (rows.facts, new.facts),
        (_tensors(rows.decisions), _tensors(new.decisions)),
    ]
    for own, other in pairs:
        if own.keys() != other.keys():
            name = sorted(own.keys() ^ other.keys())[0]
            raise ValueError(
                f"Transitions holds decisions with and without {name!r}: all of a run's must carry the same"
            )
        for name, x in own.items():
            x[place_K] = other[name]
