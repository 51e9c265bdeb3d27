"""A tool answers in the middle of a rollout: what is whose, where it stands, what it costs, and that a state continues."""

from dataclasses import dataclass

import pytest
import torch

from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.tools import AbstractTool, Calculator
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Part, Task
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def engine(policy, **spec):
    sampler = Native(slots=4, precision="float32", entropy=True)
    live = Driven(engine=sampler, workflow=Dialogue(**spec)).start(policy)
    live.load(3, policy.state_dict())
    return live


def asked(index=0, sample=0, **sampling):
    task = training_tasks(size=20)[index]
    return Request(group=index, task=task, sample=sample, sampling=Sampling(**{"max_length": 64, **sampling}), seed=5)


def drain(live):
    return {key: item.rollout for key, item in drained(live).items()}


def spans(rollout):
    """Texts of the observations, one a turn."""
    ids = rollout.decisions.ids_NL[0, int(rollout.decisions.prompt_N[0]) :]
    said_S = rollout.part_S == Part.OBSERVATION
    return [ids[said_S & (rollout.turn_S == turn)] for turn in range(int(rollout.turn_S[said_S].max()) + 1)]


@pytest.mark.parametrize(
    "text, said", [("1 12+30=", "42"), ("7-9=", "-2"), ("-7*3=", "-21"), ("=", "?"), ("4+4=8", None)]
)
def test_the_calculator(text, said):
    assert Calculator()(Task(id="a"), text) == said


def test_answers_stand_where_they_were_asked_for(policy):
    live = engine(policy)
    for index in range(6):
        live.submit(asked(index))
    rollouts = drain(live)
    assert len(rollouts) == 6 and not live.flows and not live.drawing
    answered = 0
    for rollout in rollouts.values():
        rollout.validate()
        ids = rollout.decisions.ids_NL[0, int(rollout.decisions.prompt_N[0]) :]
        assert (rollout.mask_S == (rollout.part_S == Part.RESPONSE)).all() and rollout.sampling.stop == ()
        for turn, told in enumerate(spans(rollout) if (~rollout.mask_S).any() else []):
            start = int(((rollout.turn_S == turn) & ~rollout.mask_S).nonzero()[0])
            before = policy.decode(ids[:start].tolist())
            assert before.endswith("=") and policy.decode(told.tolist()) == Calculator()(rollout.task, before)
            answered += 1
        scored_S = live.score(rollout)
        torch.testing.assert_close(rollout.behavior_S[rollout.mask_S], scored_S[rollout.mask_S], atol=1e-4, rtol=0)
        assert (rollout.behavior_S[~rollout.mask_S] == 0).all() and (rollout.entropy_S[~rollout.mask_S] == 0).all()
        assert (rollout.entropy_S[rollout.mask_S] > 0).float().mean() > 0.5 and (rollout.version_S == 3).all()
    assert answered > 3


def test_without_a_trigger_it_is_the_engine_inside(policy):
    live = engine(policy, answers=0)
    plain = Native(slots=4, precision="float32").start(policy)
    plain.load(3, policy.state_dict())
    for e in (live, plain):
        e.submit(asked())
    mine, theirs = drain(live)[0, 0], drain(plain)[0, 0]
    assert mine.text == theirs.text and mine.stop == theirs.stop and mine.mask_S.all() and (mine.turn_S == 0).all()
    assert torch.equal(mine.behavior_S, theirs.behavior_S)


def test_no_more_answers_than_allowed(policy):
    live = engine(policy, answers=1)
    for index in range(4):
        live.submit(asked(index))
    assert max(int(rollout.turn_S.max()) for rollout in drain(live).values()) == 1


@pytest.mark.parametrize("length", [12, 13, 14, 15, 16])
def test_what_does_not_fit_is_cut(policy, length):
    live = engine(policy)
    for index in range(4):
        live.submit(asked(index, max_length=length))
    for rollout in drain(live).values():
        assert rollout.length <= length
        assert rollout.stop == "length" or int(rollout.decisions.ids_NL[0, -1]) in policy.end_ids


def test_own_stop_strings_end_it(policy):
    live = engine(policy)
    live.submit(asked(2, stop=("</think>",)))
    rollout = drain(live)[2, 0]
    assert rollout.text.count("</think>") == (rollout.stop == "stop") and rollout.sampling.stop == ("</think>",)


@dataclass(frozen=True, kw_only=True)
class Silent(AbstractTool):
    @property
    def triggers(self):
        return ("=",)

    def __call__(self, task, text):
        return None


def test_a_silent_tool_changes_nothing(policy):
    live, plain = engine(policy, tool=Silent()), engine(policy, answers=0)
    for e in (live, plain):
        e.submit(asked(1))
    mine, theirs = drain(live)[1, 0], drain(plain)[1, 0]
    assert mine.text == theirs.text and mine.mask_S.all()
    torch.testing.assert_close(mine.entropy_S, theirs.entropy_S, atol=1e-4, rtol=0)


def test_a_state_goes_on_to_the_same_text(policy):
    live = engine(policy)
    for index in range(3):
        live.submit(asked(index))
    for _ in range(20):
        live.step()
    fresh = engine(policy)
    fresh.load_state_dict(live.state_dict())
    mine, theirs = drain(live), drain(fresh)
    assert mine.keys() == theirs.keys() and mine
    for key, rollout in mine.items():
        assert rollout.text == theirs[key].text and torch.equal(rollout.mask_S, theirs[key].mask_S)


def test_cancelled_ones_come_back_with_their_parts(policy):
    answered = engine(policy)
    for index in range(6):
        answered.submit(asked(index))
    index = next(key[0] for key, rollout in drain(answered).items() if (~rollout.mask_S).any())
    live = engine(policy)
    for steps in (0, 3):
        live.submit(asked(index))
        while not live.acting:
            live.step()
        while steps and (live.acting or live.inner.queue):
            live.step()
        for _ in range(steps):
            live.step()
        held = live.cancel((index, 0))
        assert held.stop == "cancelled" and not live.in_flight and not live.flows and not live.acting
        # Asked and not answered yet, what was drawn so far ends at the trigger.
        assert held.text.endswith("=") and held.mask_S.all() if steps == 0 else (~held.mask_S).any()
