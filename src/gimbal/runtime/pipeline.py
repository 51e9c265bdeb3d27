"""The rollout half of the loop, in one thread; deterministic where its engine and its scorer are.

    curriculum -> budget -> engine -> group -> rewards -> filters -> ready -> batch for the learner
                    more? <-------------------- scored

Every dispatched rollout comes out exactly once: trained on, dropped with a counted reason, or in a group dropped with one. A
sample that the engine drops leaves its group to the others. What waits for what:

    dispatch  waits for room: at most (a + 1) B groups outstanding           unblocked by a learner step or a drop
    batch     waits for B ready groups and for the rule of staleness         unblocked by engine and scorer finishing groups
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from gimbal.config.own import numbers, wrong
from gimbal.dataflow.base import AbstractBudget, AbstractCurriculum, AbstractFilter, AbstractObserver, Begun, Progress
from gimbal.dataflow.staleness import AbstractStaleness
from gimbal.engines.base import AbstractEngine, Finished, Request
from gimbal.ops.seeds import stable_hash
from gimbal.records import VISIT, AbstractSampling, Drop, Episode, Group, Task
from gimbal.report.selection import Selection
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import answered, follow_ups
from gimbal.runtime.base import AbstractScorer, Scored
from gimbal.runtime.patience import Patience, Starved
from gimbal.runtime.rounds import chosen, further, plans

__all__ = ["Parts", "Pipeline", "Starved"]


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The components of the rollout half, already live."""

    engine: AbstractEngine
    scorer: AbstractScorer
    curriculum: AbstractCurriculum
    budget: AbstractBudget
    rewards: Sequence[AbstractReward]
    filters: Sequence[AbstractFilter]
    sampling: AbstractSampling
    arrived: Callable[[Group], None] = lambda group: None  # called with each group that starts waiting for its batch
    fix: Callable[[Group, int], Group] = lambda group, latest: group  # the store's change to a scored group
    note: Callable[[str], None] = lambda sentence: None  # tells the user
    least: int = 1  # episodes a group must keep for the estimator, when samples are lost


State = Literal["drawing", "scoring", "scored", "ready"]


@dataclass(kw_only=True)
class Flight:
    """A group from its dispatch until a batch takes it or it is dropped.

    drawing -> scoring -> scored (waits for its round) -> ready (waits for its batch), or back to drawing if the budget wants more.
    """

    task: Task
    version: int  # the learner's at dispatch
    round: int  # what was dispatched together may be given more only together
    asked: int  # rollouts asked for so far
    planned: int  # rollouts to arrive before it is scored
    answers: int = 0  # to follow-ups of rewards, to arrive as well: the samples behind these
    growths: int = 0  # how often it was given more
    state: State = "drawing"
    results: Mapping[int, Episode | Drop] = field(default_factory=dict)  # drawing: what has arrived, by sample
    drawn: Group | None = None  # scoring, scored: all of that
    group: Group | None = None  # scored: with its scores; ready: as the filters left it
    lost: Mapping[str, int] = field(default_factory=dict)  # scored: rollouts that left it meanwhile, by reason


class Pipeline:
    """Turns tasks into batches of B groups, none older than its staleness rule allows."""

    def __init__(
        self,
        parts: Parts,
        staleness: AbstractStaleness,
        *,
        ahead: Literal["ready", "full"],
        seed: int,
        max_empty_batches: int,
        surplus: Literal["wait", "recycle"] = "wait",
    ) -> None:
        self.parts, self.staleness, self.ahead, self.seed, self.surplus = parts, staleness, ahead, seed, surplus
        # Tasks to dispatch next: those of groups that were taken back, then the curriculum's that wait for a whole round.
        self.returned: deque[Task] = deque()
        self.version = -1  # the last learner step reported to curriculum and budget
        self.patience = Patience(
            max_empty_batches * staleness.groups_per_step,
            least=parts.least,
            rewards=[reward.name for reward in parts.rewards],
            note=parts.note,
        )
        self.dispatched = 0  # groups so far; the next group's index
        # By index. One that changes its state moves to the end: those in one state stand in the order in which they entered it.
        self.outstanding: dict[int, Flight] = {}
        self.drops: Counter[str] = Counter()  # groups, by reason, and "rollouts/REASON", over the whole run
        self.generated = Counter[str]()  # rollouts and decisions drawn over the whole run
        self.bought = Counter[str]()  # decisions trained on, and groups whose scores differ, over the whole run
        self.selection = Selection()
        self.lonely = False  # whether the user has been told in this process of groups with nothing to compare
        self.uncollected: list[Finished] = []
        self.oversampling = 1.0  # groups asked for, for each one wanted; the trainer sets it before each batch
        # Groups finished since the last batch, and those of them that were admitted, surplus ones too.
        self.finished = self.admitted = 0
        self.kept_frac = 1.0  # admitted / finished of the last batch for which any finished
        self.seen: list[Group] = []  # scored since the last batch, dropped ones included: what metrics are about

    def next_batch(self, version: int) -> tuple[list[Group], list[Group]]:
        """Generate until the learner, now at ``version``, may step; returns (groups to train on, groups finished since the last)."""
        if version != self.version:
            progress = Progress(version=version, drawn=self.generated["decisions"])
            self.parts.curriculum.step(progress)
            self.parts.budget.step(progress)
            self.version = version
        if self.uncollected:  # first finish what an error interrupted
            self._go_on()
        self._grow()
        while True:
            self._drop_stale(version)
            self._dispatch(version)
            if indices := self._batch(version) or self._recycle(version):
                break
            self._go_on()
        ready = self.ready
        batch = [ready[index] for index in indices]
        for index, group in zip(indices, batch, strict=True):
            del self.outstanding[index]
            self.selection.trained(group)
            self.bought["trained"] += sum(int(row.mask_S.sum()) for row in group.rows)
        # Figures of a step are about all that was scored for it; over the batch alone they would hide what filters took away.
        seen, self.seen = self.seen, []
        self.kept_frac = self.admitted / self.finished if self.finished else self.kept_frac
        self.finished = self.admitted = 0
        return batch, seen

    def _go_on(self) -> None:
        """Let the engine and the rewards work, and collect what they finished."""
        engine, scorer = self.parts.engine, self.parts.scorer
        if not self.uncollected and engine.in_flight:
            self.uncollected = engine.step()
        elif not self.uncollected:
            assert scorer.pending, self._stuck()
        # One leaves the list only once it is with the scorer, so that a reward that raises loses nothing: see state_dict.
        while self.uncollected:
            given_up = self._collect(self.uncollected[0])
            del self.uncollected[0]
            if given_up is not None:
                self._give_up(*given_up)
            self._admit_ready(wait=False)
        self._admit_ready(wait=not engine.in_flight)

    def _admit_ready(self, *, wait: bool) -> None:
        self._grow()  # a round that has lost a group may be complete now
        verdict = self.parts.scorer.ready(wait=wait)
        while verdict is not None:
            self._take(verdict)
            self._grow()
            verdict = self.parts.scorer.ready(wait=False)

    def _take(self, verdict: Scored) -> None:
        """A group that is scored waits for its round; one of which nothing is left is given up."""
        if isinstance(verdict.outcome, Group):
            flight = self._move(verdict.index, "scoring", "scored")
            flight.group, flight.lost = verdict.outcome, verdict.lost
        else:
            self.finished += 1
            self._give_up(verdict.index, verdict.outcome.reason)

    def _grow(self) -> None:
        """Where all groups of a round are scored, draw more for them if the budget asks for it; otherwise admit them all."""
        if not any(flight.state == "scored" for flight in self.outstanding.values()):
            return
        rounds: dict[int, list[int]] = {}
        for index in sorted(self.outstanding):
            if self.outstanding[index].state != "ready":
                rounds.setdefault(self.outstanding[index].round, []).append(index)
        for indices in rounds.values():
            flights = [self.outstanding[index] for index in indices]
            begun = [Begun(group=one.group, asked=one.asked) for one in flights if one.state == "scored" and one.group]
            if len(begun) < len(flights):
                continue
            more = further(self.parts.budget, begun, [flight.growths for flight in flights])
            for index, count in zip(indices, more, strict=True):
                if count:
                    self._draw_more(index, int(count))
                elif not any(more):
                    self._admit(index)

    def _draw_more(self, index: int, count: int) -> None:
        """Back to the engine: its rollouts so far have arrived, ``count`` are expected. All of them are scored again, together."""
        flight = self._move(index, "scored", "drawing")
        drawn, group = flight.drawn, flight.group
        assert drawn is not None and group is not None, index
        task = self.parts.budget.asks(group)
        if not isinstance(task, Task) or task.id != flight.task.id:
            raise wrong(self.parts.budget, "asks", task, f"the task {flight.task.id!r}, perhaps with another prompt")
        flight.results, flight.drawn, flight.group, flight.lost = {e.sample: e for e in drawn.episodes}, None, None, {}
        flight.planned, flight.answers = len(drawn.episodes) + count, 0
        samples = range(flight.asked, flight.asked + count)
        flight.asked, flight.growths = samples.stop, flight.growths + 1
        self._submit(index, task, samples, drawn.rollouts[0].sampling)

    def _dispatch(self, version: int) -> None:
        wanted = self.staleness.wanted(len(self.ready), self._flying, self.oversampling)
        while len(self.returned) < wanted:
            # First what was taken back, or a curriculum's order would never be finished.
            self.returned.append(chosen(self.parts.curriculum))
        if not wanted:
            return
        tasks = [self.returned[n] for n in range(wanted)]
        first, planned = self.dispatched, plans(self.parts.budget, tasks)
        for task, plan in zip(tasks, planned, strict=True):
            self.returned.popleft()
            index, self.dispatched = self.dispatched, self.dispatched + 1
            self.selection.dispatched(index, self.generated["decisions"])
            count, number = plan.rollouts, first if self.parts.budget.rounds else index
            self.outstanding[index] = Flight(task=task, version=version, round=number, asked=count, planned=count)
            self._submit(index, task, range(count), replace(self.parts.sampling, max_length=plan.max_length))

    def _submit(self, index: int, task: Task, samples: Sequence[int], sampling: AbstractSampling) -> None:
        # A rollout's stream follows from (seed, task, sample), whatever else is under way. A task that comes again has another seed:
        # with the same random numbers and nearly the same weights it would say what it said, and teach nothing of its chances.
        seed = stable_hash(self.seed, VISIT, task.columns[VISIT]) if task.columns.get(VISIT) else self.seed
        for sample in samples:
            self.parts.engine.submit(Request(group=index, task=task, sample=sample, sampling=sampling, seed=seed))

    def _collect(self, finished: Finished) -> tuple[int, str] | None:
        """Store the result, and score its group once that is complete; returns (group, reason) if too little of it is left to score."""
        (index, sample), outcome = finished.key, finished.settled
        flight = self.outstanding[index]
        assert flight.state == "drawing", finished.key
        if isinstance(outcome, Drop) and outcome.said:
            self.patience.broken(flight.task, outcome)
        flight.results = {**flight.results, sample: outcome}  # another one: a saved state may hold the last
        given_up = None
        if len(flight.results) == flight.planned + flight.answers and not self._ask(index):
            group = self._group(index)
            if isinstance(group, Group):
                self.parts.scorer.submit(group)  # a reward may raise, and then nothing must have changed
                self._move(index, "drawing", "scoring").drawn = group
            self._left(Counter(one.reason for one in flight.results.values() if isinstance(one, Drop)))
            flight.results = {}
            if isinstance(group, Drop):
                self.finished += 1
                given_up = index, group.reason
        self.generated["rollouts"] += isinstance(outcome, Episode)
        self.generated["decisions"] += outcome.drawn
        return given_up

    def _ask(self, index: int) -> bool:
        """Submit the follow-up questions of rewards about a complete group; False if there are none."""
        flight, drawn = self.outstanding[index], self._group(index)
        if isinstance(drawn, Drop) or flight.answers:
            return False
        tasks = follow_ups(drawn, self.parts.rewards)
        for sample, task in enumerate(tasks, start=flight.asked):
            sampling = drawn.rollouts[0].sampling
            self.parts.engine.submit(Request(group=index, task=task, sample=sample, sampling=sampling, seed=self.seed))
        flight.answers = len(tasks)
        return bool(tasks)

    def _group(self, index: int) -> Group | Drop:
        """The episodes that have arrived, and once they are there the answers to its follow-ups.

        A Drop where too few episodes are left for the estimator, or an answer that a reward needs was given up.
        """
        flight = self.outstanding[index]
        arrived = [flight.results[sample] for sample in sorted(flight.results)]
        drawn, answers = arrived[: flight.planned], arrived[flight.planned :]
        episodes = tuple(one for one in drawn if isinstance(one, Episode))
        if not episodes:
            return Drop(Counter(one.reason for one in drawn if isinstance(one, Drop)).most_common(1)[0][0])
        if len(episodes) < min(self.parts.least, flight.planned):
            # One rollout of a group has no baseline: its advantage would be 0 at best.
            return Drop("too_few")
        group = Group(index=index, task=flight.task, episodes=episodes)
        texts = [answer.text for answer in answers if isinstance(answer, Episode)]
        if len(texts) < len(answers):
            # The reward would read another sample's answer in the place of the missing one.
            return Drop("unanswered")
        return answered(group, texts, self.parts.rewards) if answers else group

    def _admit(self, index: int) -> None:
        """No more rollouts of it will be drawn: it is observed and filtered, and then waits for its batch."""
        flight = self.outstanding[index]
        outcome: Group | Drop | None = flight.group
        assert isinstance(outcome, Group), index
        self._alone(outcome, flight.asked)
        self.finished += 1
        self._left(flight.lost)
        self.seen.append(outcome)
        self.bought["groups"] += bool(outcome.score_G.max() > outcome.score_G.min())
        self.selection.scored(outcome, self.generated["decisions"])
        # Before filters: a curriculum that saw only what is kept would take every task for half solved.
        self.parts.curriculum.observe(outcome)
        self.parts.budget.observe(outcome)
        outcome = self.parts.fix(outcome, flight.version + self.staleness.max_staleness)
        for rule in self.parts.filters:
            if isinstance(outcome, Group):
                before, outcome = outcome, rule(outcome)
                if not isinstance(outcome, Group | Drop):
                    raise wrong(rule, "__call__", outcome, 'the Group, or Drop("its reason"), both from gimbal.records')
                self._count_lost(before, outcome, type(rule).__name__)
                if isinstance(outcome, Group) and len(outcome.episodes) < min(self.parts.least, len(before.episodes)):
                    # What filters leave must have something to compare, as what the engine leaves: see _group.
                    outcome = Drop("too_few")
        if isinstance(outcome, Drop):
            self._give_up(index, outcome.reason)
        else:
            self.patience.passed()
            self.admitted += 1
            self._move(index, "scored", "ready")
            flight.group, flight.drawn, flight.lost = outcome, None, {}
            if len(self.ready) > self.staleness.capacity:  # only with oversampling
                self._lose(max(self.ready), "surplus")  # the latest dispatched, never the slowest
            if index in self.outstanding:
                self.parts.arrived(outcome)

    def held(self) -> list[Group]:
        """Everything drawn that no batch has taken yet, unfinished rollouts too; not always whole groups."""
        single = [*self.parts.engine.partial_rollouts(), *self.uncollected]
        found = [(item.key[0], item.outcome) for item in single]
        found += [(index, one) for index, flight in self.outstanding.items() for one in flight.results.values()]
        groups = [Group(index=i, task=e.task, episodes=(e,)) for i, e in found if isinstance(e, Episode)]
        whole = [*self._in("scoring").values(), *self._in("scored").values()]
        return [*groups, *(flight.drawn for flight in whole if flight.drawn), *self.ready.values()]

    def _count_lost(self, before: Group, after: Group | Drop, reason: str) -> None:
        """Rollouts that left a group which itself stays, and decisions that train no more in rollouts which stay."""
        if not isinstance(after, Group):
            return
        if (gone := len(before.episodes) - len(after.episodes)) > 0:
            self._left({reason: gone})
        counted = {id(row.decisions): int(row.mask_S.sum()) for row in before.rows}
        # 0: one was put in its place.
        was = [(counted.get(id(row.decisions), 0), int(row.mask_S.sum())) for row in after.rows]
        if masked := sum(max(0, earlier - now) for earlier, now in was):
            self.drops[f"decisions/{reason}"] += masked

    def _left(self, reasons: Mapping[str, int]) -> None:
        """Count rollouts that left their groups."""
        self.drops.update({f"rollouts/{reason}": count for reason, count in reasons.items()})
        self.patience.rollouts.update(reasons)

    def _alone(self, group: Group, asked: int) -> None:
        """Tell the user, once, of a group that was given fewer rollouts than the estimator compares: nothing else would show it."""
        if asked < self.parts.least and not self.lonely:
            self.lonely = True
            self.parts.note(
                f"{type(self.parts.budget).__name__} gives task {group.task.id} {asked} rollout, and the advantage compares at least "
                f"{self.parts.least} of a group: such a group trains with a gradient of 0"
            )

    @property
    def observers(self) -> tuple[AbstractObserver, ...]:
        return self.parts.curriculum, self.parts.budget

    @property
    def ready(self) -> dict[int, Group]:
        """What waits for a batch: scored and admitted."""
        return {index: flight.group for index, flight in self._in("ready").items() if flight.group}

    def _in(self, state: State) -> dict[int, Flight]:
        return {index: flight for index, flight in self.outstanding.items() if flight.state == state}

    def _move(self, index: int, before: State, after: State) -> Flight:
        flight = self.outstanding[index] = self.outstanding.pop(index)
        assert flight.state == before, (index, flight.state, before)
        flight.state = after
        return flight

    @property
    def _flying(self) -> int:
        """Groups dispatched that are not admitted yet."""
        return len(self.outstanding) - len(self.ready)

    def _drop_stale(self, version: int) -> None:
        for index, group in self.ready.items():
            if self.staleness.stale(group, version):
                self._lose(index, "stale")

    def _give_up(self, index: int, reason: str) -> None:
        """Drop the group; after too many in a row there is nothing to learn from."""
        self._lose(index, reason)
        self.patience.dropped(reason, self.drops)

    def _stuck(self) -> str:
        """Nothing is in flight, stored or scored: a part broke its contract."""
        drawing = self._in("drawing").items()
        lost = [(i, n) for i, one in drawing for n in range(one.planned + one.answers) if n not in one.results]
        if not lost:
            return "nothing is in flight and nothing is ready: the pace has deadlocked"
        return (
            f"{type(self.parts.engine).__name__} lost {len(lost)} requests (group, sample): {lost[:5]}; an engine must return each of "
            'them from step, as Finished(key, Episode(...)), or as Finished(key, Drop("its reason")) if it gives it up'
        )

    def _lose(self, index: int, reason: str) -> None:
        """A group leaves untrained."""
        self.drops[reason] += 1
        self.selection.lost(index, reason)
        del self.outstanding[index]

    def _batch(self, version: int) -> list[int]:
        ready = sorted(self.ready)
        if self.ahead == "full" and self._flying and len(ready) < self.staleness.capacity:
            return []
        return self.staleness.batch(ready, {i: flight.version for i, flight in self.outstanding.items()}, version)

    def _recycle(self, version: int) -> list[int]:
        """If only surplus groups in flight keep the learner waiting, take back the latest of them. Returns what to train on, or []."""
        many = len(self.outstanding) - self.staleness.capacity
        if self.surplus == "wait" or self.ahead == "full" or many <= 0:
            return []
        # Not one that has lost samples and grown: its numbers are not those from 0.
        latest = sorted(i for i, flight in self._in("drawing").items() if flight.asked == flight.planned)[-many:]
        rest = {index: flight.version for index, flight in self.outstanding.items() if index not in latest}
        indices = self.staleness.batch(sorted(self.ready), rest, version)
        for index in latest if indices else ():
            flight = self.outstanding[index]
            for sample in set(range(flight.planned + flight.answers)) - flight.results.keys():
                begun = self.parts.engine.cancel((index, sample))
                # It was sampled even if it is thrown away: budgets of tokens and every figure for 1,000 tokens go by this.
                self.generated["decisions"] += 0 if begun is None else begun.drawn
            self.returned.append(flight.task)
            self._lose(index, "recycled")
        return indices

    def metrics(self) -> dict[str, float]:
        """Metrics of curriculum and budget, and how much of what was generated trained."""
        bought = {name: float(self.bought[name]) for name in ("trained", "groups")}
        if self.generated["decisions"]:
            bought["groups_per_1000"] = 1000 * self.bought["groups"] / self.generated["decisions"]
        named = {
            "curriculum": numbers(self.parts.curriculum, self.parts.curriculum.metrics()),
            "budget": numbers(self.parts.budget, self.parts.budget.metrics()),
            "signal": bought,
        }
        return {f"{room}/{name}": value for room, found in named.items() for name, value in found.items()}

    def state_dict(self) -> dict[str, Any]:
        return {
            "dispatched": self.dispatched,
            "outstanding": {index: dict(vars(flight)) for index, flight in self.outstanding.items()},
            "version": self.version,
            "drops": dict(self.drops),
            "generated": dict(self.generated),
            "bought": dict(self.bought),
            "selection": self.selection.state_dict(),
            "returned": list(self.returned),
            "uncollected": list(self.uncollected),
            "seen": list(self.seen),
            "counts": [self.finished, self.admitted, self.kept_frac],
            "curriculum": self.parts.curriculum.state_dict(),
            "budget": self.parts.budget.state_dict(),
            "engine": self.parts.engine.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.dispatched = state["dispatched"]
        self.outstanding = {index: Flight(**fields) for index, fields in state["outstanding"].items()}
        self.version, self.seen = state["version"], list(state["seen"])
        self.uncollected = list(state["uncollected"])
        self.finished, self.admitted, self.kept_frac = state["counts"]
        self.drops, self.generated = Counter(state["drops"]), Counter(state["generated"])
        self.bought = Counter(state["bought"])
        self.selection.load_state_dict(state["selection"])
        self.returned = deque(state["returned"])
        self.parts.curriculum.load_state_dict(state["curriculum"])
        self.parts.budget.load_state_dict(state["budget"])
        self.parts.engine.load_state_dict(state["engine"])
        for flight in self._in("scoring").values():
            assert flight.drawn is not None
            self.parts.scorer.submit(flight.drawn)
