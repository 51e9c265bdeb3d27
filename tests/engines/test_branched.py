"""Where branches leave their trunk, what they take over and what counts in them, and that a state goes on."""

import pytest
import torch

from gimbal.engines.base import Request
from gimbal.engines.branched import Branched
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import practice
from gimbal.policies.token import CausalLM
from gimbal.records import Sampling

GROUP = 8


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def engine(policy, *, precision="float32", **spec):
    live = Branched(engine=Native(slots=4, precision=precision, entropy=True), **spec).start(policy)
    live.load(3, policy.state_dict())
    return live


def ask(live, groups=1, samples=range(GROUP), **sampling):
    for index in range(groups):
        for sample in samples:
            sampled = Sampling(**{"max_length": 64, **sampling})
            live.submit(Request(group=index, task=practice(size=20)[index], sample=sample, sampling=sampled, seed=5))


def drain(live):
    finished = []
    while live.in_flight:
        finished += live.step()
    assert not live.inner.in_flight
    return {item.key: item.rollout for item in finished}


def ids(rollout):
    return rollout.decisions.ids_NL[0, int(rollout.decisions.prompt_N[0]) :].tolist()


@pytest.mark.slow
def test_branches_leave_where_the_trunk_was_least_certain(policy):
    live = engine(policy, trunks=2, places=2)
    ask(live, groups=3)
    rollouts = drain(live)
    assert len(rollouts) == 3 * GROUP and not live.waiting and not live.split
    split = 0
    for (group, sample), branch in rollouts.items():
        branch.validate()
        if sample < 2:
            assert branch.fork is None and bool(branch.mask_S.all())
            continue
        trunk = rollouts[group, sample % 2]
        at = sorted(range(trunk.length), key=lambda s: float(trunk.behavior_S[s]))[:2][(sample // 2 - 1) % 2]
        if at == 0:
            assert branch.fork is None and bool(branch.mask_S.all())
            continue
        split += 1
        assert branch.fork == (sample % 2, at) and branch.drawn == branch.length - at
        assert branch.mask_S.tolist() == [False] * at + [True] * branch.drawn
        assert ids(branch)[:at] == ids(trunk)[:at]
        assert torch.equal(branch.behavior_S[:at], trunk.behavior_S[:at])
        assert torch.equal(branch.entropy_S[:at], trunk.entropy_S[:at])
        torch.testing.assert_close(live.score(branch), branch.behavior_S, atol=1e-4, rtol=0)
    assert split > GROUP
    texts = {tuple(ids(rollout)) for (group, _), rollout in rollouts.items() if group == 0}
    assert len(texts) > 2, "branches draw their own rest"


def test_as_many_trunks_as_samples_is_the_engine_itself(policy):
    live = engine(policy, trunks=GROUP)
    plain = live.spec.engine.start(policy)
    plain.load(3, policy.state_dict())
    ask(live)
    ask(plain)
    ours, theirs = drain(live), {item.key: item.rollout for item in iter_steps(plain)}
    for key, rollout in theirs.items():
        assert ids(ours[key]) == ids(rollout) and ours[key].fork is None
        assert torch.equal(ours[key].behavior_S, rollout.behavior_S)


def iter_steps(live):
    while live.in_flight:
        yield from live.step()


def test_what_a_branch_takes_over_keeps_its_version(policy):
    live = engine(policy, trunks=1)
    ask(live, samples=range(4))
    finished = []
    while not finished:
        finished = live.step()
    live.load(4, policy.state_dict())
    for rollout in drain(live).values():
        at = rollout.fork[1] if rollout.fork else 0
        assert rollout.version_S.tolist() == [3] * at + [4] * rollout.drawn


def test_a_branch_without_its_trunk_is_drawn_whole(policy):
    live = engine(policy, trunks=1)
    ask(live, samples=[3])
    (alone,) = drain(live).values()
    assert alone.fork is None and bool(alone.mask_S.all())
    ask(live, samples=[0, 1, 2])
    assert live.in_flight == 3
    assert live.cancel((0, 1)) is None and live.in_flight == 2
    live.step()
    assert live.cancel((0, 0)).stop == "cancelled" and live.in_flight == 1
    ((key, rollout),) = drain(live).items()
    assert key == (0, 2) and rollout.fork is None


def test_a_cancelled_branch_gives_back_what_it_drew(policy):
    live = engine(policy, trunks=1)
    ask(live, samples=[0, 1])
    while not live.split:
        live.step()
    assert live.cancel((0, 1)) is None, "it has drawn nothing of its own"
    ask(live, samples=[0, 1])
    while not live.split:
        live.step()
    live.step()
    branch = live.cancel((0, 1))
    assert branch.drawn == 1 and int(branch.mask_S.sum()) == 1 and branch.fork is not None
    assert live.in_flight == 0 and not live.split


@pytest.mark.slow
@pytest.mark.parametrize("steps", [3, 30])
def test_a_state_goes_on_to_the_same_bits(policy, steps):
    live, fresh = engine(policy), engine(policy)
    ask(live, groups=2)
    for _ in range(steps):
        live.step()
    fresh.load_state_dict(live.state_dict())
    ours, theirs = drain(live), drain(fresh)
    assert set(ours) == set(theirs) and ours
    for key, rollout in ours.items():
        assert ids(rollout) == ids(theirs[key]) and rollout.fork == theirs[key].fork
        assert torch.equal(rollout.behavior_S, theirs[key].behavior_S)
        assert torch.equal(rollout.entropy_S, theirs[key].entropy_S)


def test_counts_below_1_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Branched(trunks=0)
    with pytest.raises(ValueError, match="at least 1"):
        Branched(places=0)
