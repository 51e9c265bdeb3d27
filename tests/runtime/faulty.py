"""Pools under faults: an engine and a reward that only count, members that die, hang and dawdle, and the account of what came out."""

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass

import made
import torch

from gimbal.dataflow.budgets.fixed import FixedBudget
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.dataflow.staleness import Pace
from gimbal.engines.base import AbstractEngine, AbstractEngineSpec, Finished
from gimbal.environments.dataset import Rows
from gimbal.learning.weight_sync.base import AbstractWeightSync
from gimbal.learning.weight_sync.memory import Memory
from gimbal.ops import philox
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.token import Sampling, Tokens
from gimbal.rewards.base import AbstractReward
from gimbal.runtime.fleet import AbstractBackend, Died
from gimbal.runtime.members import Judge, Sampler
from gimbal.runtime.pipeline import Parts, Pipeline
from gimbal.runtime.pool import PoolEngine, PoolScorer
from gimbal.runtime.schedule import Schedule

VERSION = "version"


class Nothing(AbstractPolicy):
    """The policy of an engine that samples none."""

    def evaluate(self, *arguments, **named):
        raise NotImplementedError

    def pieces(self, decisions):
        return []

    def save(self, directory):
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Counting(AbstractEngineSpec):
    """Rollouts of random length whose decisions say nothing but the version that drew them; a step takes up to ``delay`` seconds."""

    delay: float = 0.0
    longest: int = 6
    size: int = 0  # bytes of text of each rollout

    def start(self, policy):
        return CountingEngine(self)


class CountingEngine(AbstractEngine):
    def __init__(self, spec):
        self.spec, self.live, self.current = spec, {}, -1

    version = property(lambda self: self.current)
    tolerance = property(lambda self: 0.0)
    in_flight = property(lambda self: len(self.live))

    def submit(self, request):
        assert request.key not in self.live
        drawn = philox(request.seed, request.task.id, request.sample)
        self.live[request.key] = (request, int(drawn.integers(1, self.spec.longest + 1)), [])

    def step(self):
        time.sleep(random.random() * self.spec.delay)
        finished = []
        for key, (request, length, drawn) in list(self.live.items()):
            drawn.append(self.current)
            if len(drawn) == length:
                del self.live[key]
                finished.append(Finished.of(key, rollout(request, drawn, self.spec.size)))
        return finished

    def cancel(self, key):
        del self.live[key]

    def load(self, version, state):
        assert all(torch.equal(state[name], tensor) for name, tensor in weights(version).items())
        self.current = version

    def score(self, rollout):
        return torch.zeros(rollout.length)

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


def rollout(request, versions, size=0):
    n = len(versions)
    return made.rollout(
        task=request.task,
        sample=request.sample,
        decisions=Tokens.row([1], [2] * n),
        version_S=torch.tensor(versions),
        sampling=request.sampling,
        text="x" * size,
    )


@dataclass(frozen=True, kw_only=True)
class SampleIsScore(AbstractReward):
    name: str = "sample"

    def __call__(self, group):
        return [float(rollout.sample) for rollout in group.rollouts]


class Here(AbstractBackend):
    """Members in this process, which execute a call when they are waited for, if chance has it. Faults are drawn from ``chances``."""

    def __init__(self, kind, arguments, draw, chances):
        self.kind, self.arguments, self.draw, self.chances = kind, arguments, draw, chances
        self.lock, self.calls, self.answers, self.faults = threading.Lock(), {}, {}, Counter()
        self.references = iter(range(1 << 62))
        self.armed = True

    def spawn(self):
        return {"object": self.kind(*self.arguments), "state": "well", "queue": []}

    def call(self, handle, method, arguments):
        with self.lock:
            reference = next(self.references)
            self.calls[reference] = (handle, method, arguments)
            handle["queue"].append(reference)
            return reference

    def aside(self, handle):
        with self.lock:
            reference = next(self.references)
            self.answers[reference] = "hanging about, 9.9 s so far" if handle["state"] == "hung" else ""
            return reference

    def put(self, value):
        return value

    def wait(self, references, seconds):
        with self.lock:
            for reference in references:
                if reference not in self.answers and self.draw.random() < 0.7:
                    self._execute(reference)
            ready = [reference for reference in references if reference in self.answers]
        if not ready:
            time.sleep(min(seconds, 1e-4))
        return ready

    def get(self, reference):
        with self.lock:
            answer = self.answers.pop(reference)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def kill(self, handle):
        with self.lock:
            handle["state"] = "dead"

    def _execute(self, reference):
        handle, method, arguments = self.calls[reference]
        if handle["state"] == "hung":
            return
        assert handle["queue"][0] == reference, "only the head of a member's calls may be waited for"
        if self.armed and handle["state"] == "well" and (fault := self._fault(method)):
            self.faults[fault] += 1
            handle["state"] = "hung" if fault == "hangs" else "dead"
            if fault == "dies after":
                _result(handle, method, arguments)
            if fault == "hangs":
                return
        handle["queue"].pop(0)
        del self.calls[reference]
        dead = handle["state"] == "dead"
        self.answers[reference] = Died("killed") if dead else _result(handle, method, arguments)

    def _fault(self, method):
        drawn = self.draw.random()
        for name, chance in self.chances.items():
            if drawn < chance:
                return "" if (name, method) == ("hangs", "start") else name  # a start has minutes
            drawn -= chance
        return ""


def _result(handle, method, arguments):
    """What the call returns or raises: the latter is raised again by ``get``, as where the member is another process."""
    try:
        return getattr(handle["object"], method)(*arguments)
    except Exception as error:
        return error


def wired(samplers, judges, *, k, workers=2, scorers=2, patience=60.0, note=lambda sentence: None, surplus="wait"):
    """A pipeline over these backends: 2 groups of 3 a batch."""
    schedule = Schedule()
    scorer = PoolScorer(judges, schedule, scorers=scorers, patience=patience, in_order=k == 0, note=note)
    engine = PoolEngine(samplers, schedule, workers=workers, patience=patience, note=note)
    return pipeline_over(engine, scorer, k=k, surplus=surplus)


def pipeline_over(engine, scorer, *, k, surplus="wait"):
    tasks = Rows(rows=[{"prompt": f"{n}"} for n in range(50)])
    sampling, rewards = Sampling(max_length=8), [SampleIsScore()]
    budget, curriculum = FixedBudget(3, 8), Epochs().start(tasks, 0)
    parts = Parts(
        engine=engine,
        scorer=scorer,
        curriculum=curriculum,
        budget=budget,
        rewards=rewards,
        filters=[],
        sampling=sampling,
    )
    pipeline = Pipeline(parts, Pace().start(k, 2), ahead="ready", seed=0, max_empty_batches=1000, surplus=surplus)
    pipeline.oversampling = 1.0 if surplus == "wait" else 2.0
    return pipeline


def weights(version):
    """Of which little changes from version to version."""
    return {VERSION: torch.tensor(version), "rest": torch.arange(1000.0) + (torch.arange(1000) < version)}


def drive(pipeline, versions, *, k, between=lambda version: None, sync: AbstractWeightSync | None = None):
    """Consume batch after batch as a learner does; returns the account after checking it: nothing too old, lost or doubled."""
    engine, consumed, ages, batches = pipeline.parts.engine, Counter(), Counter(), []
    sync = sync or Memory()
    for version in range(versions):
        sync.publish(version, weights(version))
        sync.deliver(engine)
        between(version)
        groups, _ = pipeline.next_batch(version)
        assert len(groups) == 2
        batches.append([(group.index, [rollout.version_S.tolist() for rollout in group.rollouts]) for group in groups])
        for group in groups:
            consumed[group.index] += 1
            assert [rollout.sample for rollout in group.rollouts] == [0, 1, 2], group
            assert [rollout.score for rollout in group.rollouts] == [0.0, 1.0, 2.0], group
            for rollout in group.rollouts:
                age = version - rollout.oldest
                ages[age] += 1
                assert age <= k, f"group {group.index} is {age} versions old"
    assert max(consumed.values()) == 1, "a group was trained on twice"
    assert not set(consumed) & set(pipeline.outstanding), "a group that was trained on is still outstanding"
    missing = set(range(pipeline.dispatched)) - set(consumed) - set(pipeline.outstanding)
    assert len(missing) == pipeline.drops.total(), f"groups {sorted(missing)} are lost; dropped were {pipeline.drops}"
    if not isinstance(engine, PoolEngine):
        return batches
    open_ = {*engine.ledger.held, *engine.ledger.waiting} | {item.key for item in engine.inbox}
    drawing = {index: flight for index, flight in pipeline.outstanding.items() if flight.state == "drawing"}
    arrived = {(group, sample) for group, flight in drawing.items() for sample in flight.results}
    arrived |= {item.key for item in pipeline.uncollected}
    wanted = {(group, sample) for group in drawing for sample in range(3)}
    assert open_ | arrived | {r.key for r in engine.entered} == wanted and not open_ & arrived
    return {"batches": batches, "ages": ages, "repeated": engine.ledger.repeated, "consumed": len(consumed)}


def closed(pipeline):
    pipeline.parts.engine.close()
    pipeline.parts.scorer.close()


def members(chances, seed, longest=6):
    """Backends in this process with the same chances of faults."""
    draw = random.Random(seed)
    samplers = Here(Sampler, (Nothing(), Counting(longest=longest), 1), draw, chances)
    return samplers, Here(Judge, ([SampleIsScore()],), draw, chances)
