"""Which groups are drawn hotter or colder, and by what entropy."""

from dataclasses import dataclass, replace

import made
import pytest
import torch

from gimbal.engines.base import AbstractEngine, AbstractEngineSpec, Finished, Request, drained
from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM, Sampling, Tokens
from gimbal.records import Task
from gimbal.workflows.runner import Driven
from gimbal.workflows.tempered import Tempered

POLICY = CausalLM().load(0)


class Echo(AbstractEngine):
    """Finishes everything at once, with an entropy that the test chooses."""

    version, tolerance = 0, 0.0

    @property
    def in_flight(self):
        return len(self.queue)

    def __init__(self, entropy_S):
        self.entropy_S, self.queue = entropy_S, []

    def submit(self, request):
        self.queue.append(request)

    def step(self):
        queue, self.queue = self.queue, []
        return [Finished.of(request.key, self.rollout(request)) for request in queue]

    def rollout(self, request):
        return made.rollout(
            task=request.task,
            sample=request.sample,
            decisions=Tokens.row([1], [2, 3]),
            mask_S=torch.tensor([True, False]),
            sampling=request.sampling,
            entropy_S=self.entropy_S,
        )

    def cancel(self, key): ...
    def load(self, version, state): ...
    def score(self, rollout): ...

    def state_dict(self):
        return {"queue": list(self.queue)}

    def load_state_dict(self, state):
        self.queue = list(state["queue"])


@dataclass(frozen=True, kw_only=True)
class Echoes(AbstractEngineSpec):
    entropy: float | None

    def start(self, policy):
        return Echo(None if self.entropy is None else torch.tensor([self.entropy, 99.0]))


def temperatures(engine, groups=6, temperature=1.0):
    for group in range(groups):
        sampling = Sampling(temperature=temperature)
        engine.submit(Request(group=group, task=Task(id="t"), sample=0, sampling=sampling, seed=0))
    return [finished.rollout.sampling.temperature for finished in engine.step()]


def engine(entropy, **choices):
    return Driven(engine=Echoes(entropy=entropy), workflow=Tempered(every=3, **choices)).start(POLICY)


@pytest.mark.parametrize("entropy, factor", [(0.1, 1.2), (0.5, 1.2), (0.6, 0.8)])
def test_hotter_below_the_target_and_colder_above(entropy, factor):
    e = engine(entropy)
    assert temperatures(e) == [1.0] * 6, "nothing is measured yet"
    assert e.memory[0] is None
    e.load(1, {})
    assert e.memory[0] == pytest.approx(entropy), "what is masked is not measured"
    assert temperatures(e) == [1, 1, factor, 1, 1, factor]
    assert temperatures(e, temperature=0.5) == [0.5, 0.5, factor / 2, 0.5, 0.5, factor / 2]


def test_factors_of_1_reduce_to_the_engine_itself():
    e = engine(0.1, high=1.0, low=1.0)
    temperatures(e)
    e.load(1, {})
    assert temperatures(e) == [1.0] * 6


def test_what_was_tempered_is_not_measured_and_no_news_changes_nothing():
    e = engine(0.1)
    temperatures(e)
    e.load(1, {})
    e.inner.entropy_S = torch.tensor([5.0, 5.0])
    e.submit(Request(group=2, task=Task(id="t"), sample=0, sampling=Sampling(), seed=0))
    e.step()
    e.load(2, {})
    assert e.memory[0] == pytest.approx(0.1)


def test_resumes_with_what_it_had_measured():
    e, again = engine(0.1), engine(0.1)
    temperatures(e)
    e.load(1, {})
    temperatures(e, groups=2)
    again.load_state_dict(e.state_dict())
    assert again.state_dict() == e.state_dict()
    assert temperatures(again) == temperatures(e)


def test_asks_for_entropy():
    e = Driven(engine=Echoes(entropy=None), workflow=Tempered()).start(POLICY)
    with pytest.raises(ValueError, match="entropy=true"):
        temperatures(e)
    with pytest.raises(ValueError, match="at least 1"):
        Tempered(high=0.9)
    with pytest.raises(ValueError, match="from 2 on"):
        Tempered(every=1)


def test_native_records_the_temperature_it_drew_at():
    policy = POLICY
    sampler = Native(slots=4, precision="float32", entropy=True)
    e = Driven(engine=sampler, workflow=Tempered(every=2, target=99.0)).start(policy)
    e.load(0, policy.state_dict())
    asked = Request(group=0, task=Task(id="t", prompt="1 + 1 ="), sample=0, sampling=Sampling(max_length=3), seed=0)

    def drawn(request):
        e.submit(request)
        (finished,) = drained(e).values()
        return finished.rollout

    drawn(asked)
    e.load(1, policy.state_dict())
    rollout = drawn(replace(asked, group=1))
    assert rollout.sampling.temperature == pytest.approx(1.2)
    torch.testing.assert_close(e.score(rollout), rollout.behavior_S, atol=1e-4, rtol=0)
