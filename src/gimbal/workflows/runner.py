"""The runner: presents an engine driven by a workflow to the runtimes as an engine.

It holds the generators of all attempts in progress. The inner engine generates what they ask for, and threads run environments; every
answer is added to the journal of its attempt, which with the engine's own state is all there is to save. Nothing here depends on the
wall clock: the same requests to the same weights give the same rollouts, whether a tool takes a microsecond or a minute.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from gimbal.config.own import wrong
from gimbal.engines.base import (
    CONTINUE,
    DRAW,
    FORK,
    AbstractEngine,
    AbstractEngineAround,
    AbstractEngineSpec,
    AbstractSampler,
    Finished,
    Request,
    Witness,
    cut_short,
    row_key,
)
from gimbal.ops.deadline import DESK, Call
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import of_tokens
from gimbal.records import AbstractSampling, Drop, Episode, Rollout
from gimbal.workflows.acting import attack_sandboxes, seat
from gimbal.workflows.base import PAUSED, AbstractWorkflow, Act, Ask, Attempt, Draw, Drawing, Fork, Read, Stop, begun
from gimbal.workflows.checks import TWICE, checked, endless, refused, unusable
from gimbal.workflows.flow import Flow, Key, OpenCall, lengthened, new_in, restored, role_of, sample_of, saved
from gimbal.workflows.rows import branched, joined, newest_turn
from gimbal.workflows.single import SingleTurn
from gimbal.workflows.words import SPOKEN, Words


@dataclass(frozen=True, kw_only=True)
class Driven(AbstractSampler):
    """An engine and the workflow that drives it, started together in one process. With SingleTurn it is the engine itself."""

    engine: AbstractEngineSpec
    workflow: AbstractWorkflow = SingleTurn()
    owners: Mapping[str, str] = field(default_factory=dict)  # the model of each role with weights of its own
    kinds: Mapping[str, Drawing] = field(default_factory=dict)  # of those models that are of another kind
    judged: bool = True  # by rewards, so that episodes need no score of their own

    @property
    def whole(self) -> bool:
        return self.workflow.whole

    def start(self, policy: AbstractPolicy) -> AbstractEngine:
        attack_sandboxes(self.workflow)
        inner = self.engine.start(policy)
        return inner if isinstance(self.workflow, SingleTurn) else Runner(self, inner, policy)


class Runner(AbstractEngineAround):
    """The live engine around another. An attempt begins when its request arrives; an attempt at a whole group, with the next step."""

    def __init__(self, spec: Driven, inner: AbstractEngine, policy: AbstractPolicy) -> None:
        self.spec, self.workflow, self.inner, self.policy = spec, spec.workflow, inner, policy
        self.words = Words(policy, type(self.workflow).__name__)
        own = {name: spec.kinds.get(name) for name in sorted(set(spec.owners.values()))}
        self.trained = {name: spec.engine.start(policy) if k is None else begun(k, policy) for name, k in own.items()}
        frozen = {name: role.start() for name, role in self.workflow.roles.items()}
        self.others = {**frozen, **self.trained}  # engines of other policies, by role
        for engine in (inner, *self.trained.values()):
            engine.extended = bool({CONTINUE, FORK} & self.workflow.requires)
        self.memory = self.workflow.begin()
        self.clock = 0  # steps of the inner engine, and those skipped because there was nothing to draw
        self.flows: list[Flow] = []  # in the order of their beginning
        self.owner: dict[Key, Flow] = {}  # by request
        self.drawing: dict[tuple[str, Key], tuple[Flow, int]] = {}  # by role and engine's key: attempt, call
        self.acting: list[tuple[Flow, int]] = []  # in the order in which they were asked
        self.entering: list[Request] = []  # of attempts that are whole groups, or more than may run at once
        self.plain: set[Key] = set()  # requests without a group, such as a canary's
        self.done: list[Finished] = []
        self.came: dict[tuple[str, Key], Finished] = {}  # results of an engine step that are not returned yet
        self.seconds = self.idle = 0.0  # since the last metrics: steps, and those with nothing to draw

    @property
    def separate(self) -> Mapping[str, AbstractEngine]:
        return self.trained

    @property
    def in_flight(self) -> int:
        return len(self.owner) + len(self.entering) + len(self.plain) + len(self.done)

    def submit(self, request: Request) -> None:
        if request.group < 0 and DRAW in self.spec.engine.can:
            # A canary must show what the engine generates, not what a workflow makes of it.
            self.inner.submit(request)
            self.plain.add(request.key)
        elif self.workflow.whole or self.workflow.at_once is not None:
            self.entering.append(request)
        else:
            self._begin([request])

    def step(self) -> list[Finished]:
        began = time.perf_counter()
        self._enter()
        self._join()
        drawing = [(role, engine) for role, engine in self._engines.items() if engine.in_flight]
        for role, engine in drawing:
            self.came = {(role, item.key): item for item in engine.step()}
            while self.came:
                self._drawn(role, self.came.pop(next(iter(self.came))))
        self.clock += bool(drawing)
        done, self.done = self.done, []
        self.seconds += time.perf_counter() - began
        return done

    def cancel(self, key: Key) -> Rollout | Drop | None:
        for request in self.entering:
            if request.key == key:
                self.entering.remove(request)
                return None
        for item in self.done:
            if item.key == key:
                self.done.remove(item)
                return item.cancelled
        if key in self.plain:
            self.plain.remove(key)
            return self.inner.cancel(key)
        flow = self.owner.pop(key)
        flow.gone.add(key[1])
        if flow.gone < set(flow.attempt.samples):
            return None  # the others of its group need the rows that it may yet draw
        return cut_short(self._give_up(flow), flow.drawn)

    def partial_rollouts(self) -> list[Finished]:
        raise ValueError(
            f"{type(self.workflow).__name__} cannot show unfinished rollouts, which the anchor Interruption evaluates before each "
            "update: use workflow=SingleTurn(), or anchor=SamplingVersion(...)"
        )

    def load(self, version: int, state: Mapping[str, Tensor]) -> None:
        super().load(version, state)
        self.memory = self.workflow.renewed(self.memory)

    def witness(self, version: int, canary: Sequence[Rollout]) -> list[Witness]:
        return [self.workflow.witnessed(word, canary) for word in self.inner.witness(version, canary)]

    def metrics(self) -> Mapping[str, float]:
        """``perf/sampler_idle``: the share of steps in which it generated nothing and waited for an answer."""
        found, self.seconds, self.idle = self.idle / self.seconds if self.idle else None, 0.0, 0.0
        return {**self.inner.metrics(), **({} if found is None else {"perf/sampler_idle": found})}

    def state_dict(self) -> dict[str, Any]:
        """Journals, and when answers are due. Actions in progress in an environment are asked for again."""
        flows = [
            {
                "attempt": flow.attempt,
                "journal": [(number, saved(answer)) for number, answer in flow.journal],
                "gone": sorted(flow.gone),
                "due": {number: asked.due for number, asked in flow.asked.items() if isinstance(asked.call, Act)},
            }
            for flow in self.flows
        ]
        waiting = {"entering": list(self.entering), "plain": sorted(self.plain), "done": list(self.done)}
        acting = [(self.flows.index(flow), number) for flow, number in self.acting]
        others = {name: engine.state_dict() for name, engine in self.others.items()}
        own = {"flows": flows, "acting": acting, "clock": self.clock, "memory": self.memory, "others": others}
        return super().state_dict() | own | waiting

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        for name, engine in self.others.items():
            engine.load_state_dict(state["others"][name])
        self.clock, self.memory = state["clock"], state["memory"]
        self.entering, self.plain, self.done = list(state["entering"]), set(state["plain"]), list(state["done"])
        for held in state["flows"]:
            flow = self._flow(held["attempt"])
            flow.gone = set(held["gone"])
            for sample in flow.gone:
                del self.owner[flow.attempt.group, sample]
            self._repeat(flow, [(number, restored(answer)) for number, answer in held["journal"]])
            for number, due in held["due"].items():
                flow.asked[number].due = due
        for place, number in state["acting"]:
            self._act(self.flows[place], number)

    # Attempts.

    def _owner(self, call: object) -> str:
        """Whose engine draws for it: "" is the policy's."""
        return call.role if isinstance(call, Ask) else self.spec.owners.get(role_of(call), "")

    @property
    def _engines(self) -> dict[str, AbstractEngine]:
        return {"": self.inner, **self.others}

    def _enter(self) -> None:
        """Begin the attempts whose requests have arrived, as many as may run at once: if the workflow drives whole groups, those of one
        task and group are one attempt."""
        most = self.workflow.at_once
        several: dict[tuple[Any, ...], list[Request]] = {}
        for request in self.entering:
            own = () if self.workflow.whole else (request.sample,)
            several.setdefault((request.group, request.task.id, *own), []).append(request)
        for requests in several.values():
            if most is not None and len(self.flows) >= most:
                return
            for request in requests:
                self.entering.remove(request)
            self._begin(requests)

    def _begin(self, requests: Sequence[Request]) -> None:
        first = requests[0]
        attempt = Attempt(
            group=first.group,
            task=first.task,
            samples=tuple(request.sample for request in requests),
            sampling=first.sampling,
            seed=first.seed,
            memory=self.memory,
            judged=self.spec.judged,
        )
        flow = self._flow(attempt)
        try:
            self._go_on(flow)
        except BaseException:
            self._give_up(flow)  # what an engine refuses is refused as a whole, as if it had not been submitted
            raise

    def _flow(self, attempt: Attempt) -> Flow:
        steps = self.workflow(attempt)
        if not isinstance(steps, Generator):
            raise wrong(
                self.workflow, "__call__", steps, "a generator: it yields calls, such as row = yield attempt.begin()"
            )
        flow = Flow(attempt, steps)
        self.flows.append(flow)
        self.owner |= {(attempt.group, sample): flow for sample in attempt.samples}
        return flow

    def _go_on(self, flow: Flow) -> None:
        """Run until every generator of the attempt waits for something that takes time."""
        while flow.ready or flow.at_once:
            if said := endless(self.workflow, flow):
                return self._lose(flow, said)
            if flow.ready:
                for number in flow.send():
                    self._make(flow, number)
            else:
                # One after the other, each when all is quiet: in this order a journal is executed again.
                flow.answer(*flow.at_once.popleft())
        if flow.over:
            self._finish(flow)

    def _repeat(self, flow: Flow, journal: Sequence[tuple[int, Any]]) -> None:
        """Execute the generators again over their recorded answers; open calls are in progress in the engine."""
        answers = list(journal)
        while flow.ready or answers:
            if flow.ready:
                for number in flow.send():
                    self._place(flow, flow.asked[number])
                continue
            number, answer = answers.pop(0)
            if isinstance((asked := flow.asked[number]).call, Act):
                flow.seats[asked.call.seat].said[asked.entry] = answer
            flow.answer(number, lengthened(asked.call, answer))
        for number, asked in flow.asked.items():
            if asked.key is not None:
                self.drawing[self._owner(asked.call), asked.key] = (flow, number)

    def _finish(self, flow: Flow) -> None:
        attempt = flow.attempt
        several = self.workflow.whole and isinstance(flow.outcome, list | tuple)
        outcomes = list(flow.outcome) if several else [flow.outcome]
        if len(outcomes) != len(attempt.samples) or not all(isinstance(one, Episode | Drop) for one in outcomes):
            each = "an Episode or a Drop"
            each += f" for each of its {len(attempt.samples)} samples" if self.workflow.whole else ""
            raise wrong(self.workflow, "__call__", flow.outcome, f"{each} (Episode.of(row))")
        how = (self.workflow, self.spec.owners, flow.roles)
        outcomes = [checked(*pair, *how) for pair in zip(outcomes, attempt.samples, strict=True)]
        self._end(flow)
        for sample, outcome in zip(attempt.samples, outcomes, strict=True):
            if sample not in flow.gone:
                del self.owner[attempt.group, sample]
                self.done.append(Finished(key=(attempt.group, sample), outcome=outcome))
        rows = [row for outcome in outcomes if isinstance(outcome, Episode) for row in outcome.rows]
        self.memory = self.workflow.remember(self.memory, attempt, rows)

    def _lose(self, flow: Flow, said: str) -> None:
        """End the attempt and count its samples as lost."""
        kept = [sample for sample in flow.attempt.samples if sample not in flow.gone]
        self._give_up(flow)
        for sample in kept:
            drop = Drop("endless", drawn=flow.drawn if sample == kept[0] else 0, said=said)
            self.done.append(Finished(key=(flow.attempt.group, sample), outcome=drop))

    def _cancel(self, role: str, key: Key) -> Rollout | None:
        """What an engine has generated for a cancelled call, even if it ended in this same step."""
        came = self.came.pop((role, key), None)
        held = self._engines[role].cancel(key) if came is None else came.rollout
        return held if isinstance(held, Rollout) else None

    def _give_up(self, flow: Flow) -> Rollout | None:
        """Cancel its calls, and count what they have drawn so far; returns the unfinished row, if there is one."""
        row = flow.last
        for asked in list(flow.asked.values()):
            if asked.key is not None:
                drawn = self._cancel(self._owner(asked.call), asked.key)
                if drawn is not None and not isinstance(asked.call, Ask):
                    row = self._row(flow, asked, drawn)
                    flow.drawn += new_in(asked.call, row)
            if asked.under_way is not None:
                DESK.give_up(asked.under_way)
        for sample in flow.attempt.samples:
            self.owner.pop((flow.attempt.group, sample), None)
        self._end(flow)
        return row

    def _end(self, flow: Flow) -> None:
        self.flows.remove(flow)
        self.drawing = {key: value for key, value in self.drawing.items() if value[0] is not flow}
        self.acting = [(other, number) for other, number in self.acting if other is not flow]
        for one in flow.seats.values():
            one.close()

    # Calls.

    def _make(self, flow: Flow, number: int) -> None:
        """Begin a call, or answer it at once."""
        asked = flow.asked[number]
        if fault := unusable(asked.call, self.workflow, flow.attempt, self.policy):
            raise refused(self.workflow, asked.strand.steps, asked.call, fault)
        call, key = asked.call, self._place(flow, asked)
        if key is not None and (self._owner(call), key) in self.drawing:
            asked.key = None  # another call is drawing this row
            raise refused(self.workflow, asked.strand.steps, call, TWICE)
        if isinstance(call, Act):
            asked.due = None if call.overlap is None else self.clock + call.overlap
            self._act(flow, number)
        elif isinstance(call, Stop):
            flow.at_once.append((number, self._stopped(flow, call)))
        elif isinstance(call, SPOKEN):
            flow.at_once.append((number, self.words.answered(call, flow.attempt, self.inner.version)))
        elif isinstance(call, Read):
            flow.at_once.append((number, self.inner.hidden(call.rows, call.at)))
        elif key is None:  # the row has no room for this text
            flow.at_once.append((number, replace(call.row, stop="length")))
        else:
            asked.key = None  # until the engine has it
            self._draw(flow, call, key)
            asked.key = key
            self.drawing[self._owner(call), key] = (flow, number)

    def _place(self, flow: Flow, asked: OpenCall) -> Key | None:
        """Number its row, or add it to the history of its environment: the same again when a journal is replayed."""
        call, attempt = asked.call, flow.attempt
        if isinstance(call, Act):
            row = call.action if isinstance(call.action, Rollout) else None
            does = call.action if row is None else self.words.policy(call).decode(newest_turn(row))
            asked.entry = seat(flow.seats, call, attempt.task, attempt.seed).enter(does)
        elif isinstance(call, Draw) and call.row is not None:
            if self.words.fits(call, self._sampling(flow, call)):
                asked.key = row_key(attempt.group, call.row.sample, call.row.row)
        elif isinstance(call, Draw | Fork | Ask):
            sample = sample_of(flow, call)
            asked.key = row_key(attempt.group, sample, flow.row(sample))
        elif not isinstance(call, SPOKEN | Stop | Read):
            raise wrong(
                self.workflow, "__call__", call, "a call: attempt.begin(), Draw, Fork, Act, Ask, Stop or Write", "yield"
            )
        return asked.key

    def _draw(self, flow: Flow, call: Draw | Fork | Ask, key: Key) -> None:
        """Submit the call to the engine."""
        attempt, wanted = flow.attempt, self._sampling(flow, call)
        task = attempt.task if isinstance(call, Fork) or call.task is None else call.task
        row = call.row if isinstance(call, Draw | Fork) else None
        drawn = call if isinstance(call, Draw) else Draw()
        told = list(call.forced) if isinstance(call, Fork) else self.words.told(drawn) or []
        begun = len(told) + (0 if row is None else call.at if isinstance(call, Fork) else row.length)
        asked = wanted
        if not isinstance(call, Ask):
            most = wanted.max_length if call.most is None else min(wanted.max_length, begun + call.most)
            asked = wanted if most == wanted.max_length else replace(wanted, max_length=most)
            if call.stop:
                words = of_tokens(asked)
                asked = replace(words, stop=(*words.stop, *call.stop))
        request = Request(
            group=attempt.group,
            task=task if row is None else row.task,
            sample=sample_of(flow, call),
            sampling=asked,
            seed=attempt.seed,
            row=key[1] // row_key(0, 0, 1)[1],
            after=drawn.after,
            start=drawn.start,
        )
        engine = self._engines[self._owner(call)]
        if row is None or not begun:
            engine.submit(request)
        else:
            engine.extend(request, row, told, first=begun - len(told) if isinstance(call, Fork) else None)

    def _drawn(self, role: str, item: Finished) -> None:
        if item.key in self.plain and not role:
            self.plain.remove(item.key)
            self.done.append(item)
            return
        flow, number = self.drawing.pop((role, item.key))
        flow.answer(number, self._row(flow, flow.asked[number], item.rollout))
        self._go_on(flow)

    def _row(self, flow: Flow, asked: OpenCall, whole: Rollout) -> Rollout:
        """The engine's result, in the form that the workflow reads."""
        call, wanted = asked.call, self._sampling(flow, asked.call)
        if isinstance(call, Ask):
            return replace(whole, role=call.role)
        stop = PAUSED if self.words.paused(call, whole, wanted) else whole.stop
        row = replace(whole, sampling=wanted, stop=stop, role=role_of(call))
        if isinstance(call, Fork):
            return branched(call.row, call.at, len(call.forced), row)
        if isinstance(call, Draw) and call.row is not None:
            told = self.words.told(call)
            return joined(call.row, call.row.length, None if told is None else len(told), row, counts=True)
        return row

    def _sampling(self, flow: Flow, call: Draw | Fork | Ask) -> AbstractSampling:
        if call.sampling is not None:
            return call.sampling
        if (kind := self.spec.kinds.get(self._owner(call))) is not None:  # greedy where the episode is
            return replace(kind.sampling, temperature=flow.attempt.sampling.temperature)
        row = call.row if isinstance(call, Draw | Fork) else None
        return flow.attempt.sampling if row is None else row.sampling

    def _stopped(self, flow: Flow, call: Stop) -> int:
        """Cancel the rows of this sample in progress; returns how many there were."""
        found = [
            (number, asked)
            for number, asked in flow.asked.items()
            if asked.key is not None and not isinstance(asked.call, Ask) and sample_of(flow, asked.call) == call.sample
        ]
        for number, asked in found:
            assert asked.key is not None
            drawn = self._cancel(owner := self._owner(asked.call), asked.key)
            del self.drawing[owner, asked.key]
            before = asked.call.row if isinstance(asked.call, Draw) else None
            row = before if drawn is None else self._row(flow, asked, drawn)
            flow.at_once.append((number, None if row is None else replace(row, stop="cancelled")))
        return len(found)

    # Environments.

    def _act(self, flow: Flow, number: int) -> None:
        asked = flow.asked[number]
        asked.under_way = flow.seats[asked.call.seat].begin(asked.call, asked.entry)
        self.acting.append((flow, number))

    def _join(self) -> None:
        """Pass on the answers that are due, waiting for those that have not arrived.

        They are due by step count and in the order of questions, so another run, or this one resumed, passes on the same answers at the
        same place. If nothing can be generated, the count advances to the next one. Answers without a step are passed on on arrival.
        """
        while self.acting:
            drawn = self.done or any(engine.in_flight for engine in self._engines.values())
            steps = [due for flow, number in self.acting if (due := flow.asked[number].due) is not None]
            loose = {one: self._waited(*one) for one in self.acting if one[0].asked[one[1]].due is None}
            ready = [one for one, call in loose.items() if not call.left]
            if steps and not drawn and not loose:
                self.clock = max(self.clock, min(steps))
            ready += [(f, n) for f, n in self.acting if (due := f.asked[n].due) is not None and due <= self.clock]
            if not ready and drawn:
                return
            if not ready:  # with nothing to draw: whichever answer comes first
                began = time.perf_counter()
                DESK.wait(list(loose.values()))
                self.idle += time.perf_counter() - began
            for flow, number in ready:
                if (flow, number) in self.acting:  # else its attempt has ended in the meantime
                    self._hand_on(flow, number)

    def _hand_on(self, flow: Flow, number: int) -> None:
        asked = flow.asked[number]
        assert asked.under_way is not None
        began = time.perf_counter()
        moment = flow.seats[asked.call.seat].answer(asked.under_way)
        self.idle += time.perf_counter() - began
        self.acting.remove((flow, number))
        flow.answer(number, moment)
        self._go_on(flow)

    def _waited(self, flow: Flow, number: int) -> Call:
        """The awaited answer."""
        under_way = flow.asked[number].under_way
        assert under_way is not None
        return under_way
