"""Where continuations split off, by what is expected behind a turn, and what the head learns of."""

import itertools
import sys
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Digits, small_run

from gimbal import config
from gimbal.composition import Composition
from gimbal.config import Text
from gimbal.dataflow.packing import pack
from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.tools import Calculator
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes import function
from gimbal.records import Group
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.checkpoint import FORMAT
from gimbal.runtime.checkpoint import load as load_checkpoint
from gimbal.workflows.base import AbstractWorkflow
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.quality import QualityHead
from gimbal.workflows.runner import Driven
from gimbal.workflows.turn_branching import TurnBranching, apart, placed, turn_ends

GROUP = 6
DIALOGUE = Dialogue(tool=Calculator(), answers=4, overlap=0)


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def started(policy, workflow):
    live = Driven(engine=Native(slots=8, precision="float32"), workflow=workflow).start(policy)
    live.load(0, policy.state_dict())
    return live


def branching(**given):
    settings = {"inside": DIALOGUE, "head": QualityHead(width=8, bins=4), "reward": ExactAnswer()} | given
    return TurnBranching(**settings)


def ask(live, index):
    for sample in range(GROUP):
        task, sampling = training_tasks(size=8)[index], Sampling(max_length=60)
        live.submit(Request(group=index, task=task, sample=sample, sampling=sampling, seed=1))


def rows(live, index):
    ask(live, index)
    return {key[1]: item.rollout for key, item in drained(live).items()}


def test_the_value_by_hand():
    """A right trunk where success is expected: a continuation fails with 1 - V."""
    assert apart(True, 0.9) == pytest.approx(0.1) and apart(False, 0.9) == pytest.approx(0.9)
    # .5, then its second adds .25, the other's first .3: the first two differ in place, the third goes to the first again.
    assert placed({(0, 4): 0.5, (1, 7): 0.3}, 3) == [(0, 4), (0, 4), (1, 7)]
    assert placed({(0, 4): 0.5, (1, 7): 0.3}, 2) == [(0, 4), (1, 7)]


def test_placing_one_at_a_time_is_the_best_of_all_ways():
    given = {(0, 3): 0.15, (0, 9): 0.6, (1, 2): 0.35}

    def value(many):
        return sum(1 - (1 - given[end]) ** k for end, k in many.items())

    for count in range(6):
        ways = itertools.product(range(count + 1), repeat=3)
        best = max(value(dict(zip(given, way, strict=True))) for way in ways if sum(way) == count)
        assert value(Counter(placed(given, count))) == pytest.approx(best)


def test_one_half_everywhere_is_spread_evenly():
    ends = {(0, 3): 0.5, (0, 9): 0.5, (1, 2): 0.5}
    assert Counter(placed(ends, 6)) == dict.fromkeys(ends, 2)
    assert placed(ends, 2) == [(0, 3), (0, 9)], "of equals the earlier trunk, the earlier turn"


@pytest.mark.slow
def test_branches_continue_trunks_from_the_ends_of_turns(policy):
    live = started(policy, branching())
    found = rows(live, 1)
    trunks = {sample: found[sample] for sample in (0, 1)}
    ends = {(sample, at) for sample, row in trunks.items() for at in turn_ends(row)}
    assert ends and all(row.fork is None for row in trunks.values())
    for sample in range(2, GROUP):
        branch, (trunk, at) = found[sample], found[sample].fork
        branch.validate()
        assert (trunk, at) in ends and branch.turn_S[at] == branch.turn_S[at - 1] + 1
        assert torch.equal(branch.behavior_S[:at], trunks[trunk].behavior_S[:at]) and not bool(branch.mask_S[:at].any())
        assert bool(branch.mask_S[at]) and branch.state_H is not None
        own_S = branch.mask_S
        torch.testing.assert_close(live.score(branch)[own_S], branch.behavior_S[own_S], atol=1e-4, rtol=0)
    assert len(live.memory["ended"]) >= GROUP - 1 and live.memory["head"]["rounds"] == 0
    live.load(1, policy.state_dict())
    assert live.memory["head"]["rounds"] == 1 and not live.memory["ended"]


def test_as_many_trunks_as_samples_is_inside_unchanged(policy):
    ours, theirs = (rows(started(policy, workflow), 2) for workflow in (branching(trunks=GROUP), DIALOGUE))
    for sample, row in theirs.items():
        assert row.text == ours[sample].text and torch.equal(row.behavior_S, ours[sample].behavior_S)


def test_trunks_of_one_turn_leave_the_others_to_the_prompt(policy):
    plain = Dialogue(tool=Calculator(), answers=0)
    ours, theirs = (rows(started(policy, workflow), 2) for workflow in (branching(inside=plain), plain))
    assert {sample: row.text for sample, row in ours.items()} == {sample: row.text for sample, row in theirs.items()}


@pytest.mark.slow
def test_a_state_goes_on_to_the_same_bits(policy, tmp_path):
    def through(cut):
        live, found = started(policy, branching()), {}
        for index in range(2):
            ask(live, index)
            steps = 0
            while live.in_flight:
                found |= {item.key: item.rollout for item in live.step()}
                steps += 1
                if (index, steps) == cut:
                    torch.save(live.state_dict() | {"format": FORMAT}, tmp_path / "state.pt")
                    live = started(policy, branching())
                    live.load(index, policy.state_dict())
                    live.load_state_dict(load_checkpoint(tmp_path))
            live.load(index + 1, policy.state_dict())
        return {key: (row.text, row.fork) for key, row in found.items()}, live.memory["head"]

    whole, head = through(None)
    for cut in ((0, 20), (1, 45)):
        again, other = through(cut)
        assert again == whole
        assert all(torch.equal(x, y) for x, y in zip(head["weights"], other["weights"], strict=True))


def test_it_is_read_as_it_is_typed():
    text = "TurnBranching(trunks=3, inside=Dialogue(answers=4), reward=ExactAnswer())"
    typed = TurnBranching(trunks=3, inside=Dialogue(answers=4), reward=ExactAnswer())
    assert config.read(Text(text), AbstractWorkflow, "workflow") == typed


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="at least 1 rollout"):
        TurnBranching(trunks=0)
    (found,) = TurnBranching().fits(Composition(small_run()))
    assert "this run's score is 'digits': set workflow.reward" in found.reason
    (found,) = branching().fits(Composition(small_run()))
    assert "goes by ExactAnswer" in found.reason
    assert not list(branching(reward=Digits()).fits(Composition(small_run())))
    run = function("trace")()
    (found,) = run.workflow.fits(Composition(replace(run, held_out=replace(run.held_out, workflow=None))))
    assert "would not measure the policy" in found.reason


@dataclass(frozen=True, kw_only=True)
class Paying(Calculator):
    """Pays .25 for every answer."""

    def open(self):
        live = super().open()
        answer = live.step
        live.step = lambda action: replace(answer(action), reward=0.25)
        return live


@pytest.mark.slow
def test_a_branch_was_paid_what_its_trunk_was_until_the_split(policy):
    """A group compares whole paths: with the same pay for every answer, returns differ by the number of answers and by nothing else."""
    live = started(policy, branching(inside=replace(DIALOGUE, tool=Paying())))
    found = rows(live, 1)
    assert any(row.reward_S[: row.fork[1]].any() for row in found.values() if row.fork)
    for row in found.values():
        assert row.earned == pytest.approx(0.25 * int(row.turn_S.max()))
    group = Group.of(1, training_tasks(size=8)[1], [found[sample] for sample in range(GROUP)])
    batch = pack([group])
    assert batch.return_N.tolist() == pytest.approx(group.score_G.tolist())
    assert not batch.reward_NS[~batch.mask_NS].any()
