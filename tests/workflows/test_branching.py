"""Where branches leave their trunk, what they take over and what counts in them, and that a state continues."""

from dataclasses import dataclass

import pytest
import torch

from gimbal.engines.base import Request, drained
from gimbal.engines.native import Native
from gimbal.environments.demonstrations import training_tasks
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Drop, Episode, Rollout
from gimbal.runtime import checkpoint
from gimbal.workflows.base import AbstractWorkflow, Fork
from gimbal.workflows.branching import Branching
from gimbal.workflows.runner import Driven

GROUP = 8


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def engine(policy, *, precision="float32", **spec):
    sampler = Native(slots=4, precision=precision, entropy=True)
    live = Driven(engine=sampler, workflow=Branching(**spec)).start(policy)
    live.load(3, policy.state_dict())
    return live


def ask(live, groups=1, samples=range(GROUP), **sampling):
    for index in range(groups):
        for sample in samples:
            sampled = Sampling(**{"max_length": 64, **sampling})
            live.submit(
                Request(group=index, task=training_tasks(size=20)[index], sample=sample, sampling=sampled, seed=5)
            )


def drain(live):
    finished = drained(live)
    assert not live.inner.in_flight and not live.drawing
    return {key: item.rollout for key, item in finished.items()}


def ids(rollout):
    return rollout.decisions.ids_NL[0, int(rollout.decisions.prompt_N[0]) :].tolist()


@pytest.mark.slow
def test_branches_leave_where_the_trunk_was_least_certain(policy):
    live = engine(policy, trunks=2, places=2)
    ask(live, groups=3)
    rollouts = drain(live)
    assert len(rollouts) == 3 * GROUP and not live.flows
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
    ours, theirs = drain(live), {key: item.rollout for key, item in drained(plain).items()}
    for key, rollout in theirs.items():
        assert ids(ours[key]) == ids(rollout) and ours[key].fork is None
        assert torch.equal(ours[key].behavior_S, rollout.behavior_S)


def branches(live):
    """Branches under way: the keys that the engine inside draws for forks."""
    return [flow.asked[number] for flow, number in live.drawing.values() if isinstance(flow.asked[number].call, Fork)]


def test_what_a_branch_takes_over_keeps_its_version(policy):
    live = engine(policy, trunks=1)
    ask(live, samples=range(4))
    while not branches(live):
        assert live.step() == []
    live.load(4, policy.state_dict())
    rollouts = drain(live)
    assert rollouts[0, 0].version_S.tolist() == [3] * rollouts[0, 0].length
    for sample in (1, 2, 3):
        at = rollouts[0, sample].fork[1]
        assert rollouts[0, sample].version_S.tolist() == [3] * at + [4] * rollouts[0, sample].drawn


def test_a_branch_without_its_trunk_is_drawn_whole(policy):
    live = engine(policy, trunks=1)
    ask(live, samples=[3])
    (alone,) = drain(live).values()
    assert alone.fork is None and bool(alone.mask_S.all())


@dataclass(frozen=True, kw_only=True)
class FirstLost(AbstractWorkflow):
    """Gives the first sample up."""

    def __call__(self, attempt):
        row = yield attempt.begin()
        return Drop("lost", drawn=row.length) if attempt.sample == 0 else Episode.of(row)


def test_a_branch_of_what_came_to_nothing_is_drawn_whole(policy):
    live = engine(policy, trunks=1, inside=FirstLost())
    ask(live, samples=[0, 1])
    finished = drained(live)
    assert finished[0, 0].outcome.reason == "lost" and finished[0, 0].outcome.drawn > 0
    assert finished[0, 1].rollout.fork is None and bool(finished[0, 1].rollout.mask_S.all())


def test_a_cancelled_one_does_not_come_out_and_the_others_do(policy):
    live = engine(policy, trunks=1)
    ask(live, samples=[0, 1, 2])
    assert live.cancel((0, 2)) is None and live.in_flight == 2, "it has not begun"
    live.step()
    assert live.cancel((0, 0)) is None and live.in_flight == 1, "its branch still needs it"
    ((key, rollout),) = drain(live).items()
    assert key == (0, 1) and rollout.fork is not None
    ask(live, samples=[0, 1])
    while not branches(live):
        live.step()
    live.step()
    (trunk,) = (answer for _, answer in live.flows[0].journal if isinstance(answer, Rollout))
    live.cancel((0, 0))
    cut = live.cancel((0, 1))
    assert cut == Drop("cancelled", drawn=trunk.length + 1), (
        "the trunk was drawn for it, and one decision of the branch"
    )
    assert live.in_flight == 0 and not live.flows and not live.inner.in_flight


@pytest.mark.slow
def test_branches_of_branches(policy):
    """Three levels: each row splits off one that it shares a whole beginning with, and every decision counts exactly once."""
    live = engine(policy, trunks=1, places=2, deep=True)
    ask(live, samples=range(7))
    rollouts = drain(live)
    level = {0: 0}
    for sample in range(1, 7):
        branch = rollouts[0, sample]
        above, at = branch.fork
        assert above == (sample - 1) // 2
        level[sample] = level[above] + 1
        trunk = rollouts[0, above]
        assert ids(branch)[:at] == ids(trunk)[:at] and torch.equal(branch.behavior_S[:at], trunk.behavior_S[:at])
        assert branch.mask_S.tolist() == [False] * at + [True] * branch.drawn
        assert bool(trunk.mask_S[at]), "it splits where its trunk decided something itself"
    assert set(level.values()) == {0, 1, 2}


@pytest.mark.slow
@pytest.mark.parametrize("ended", [False, True])
def test_a_state_goes_on_to_the_same_bits(policy, ended, tmp_path):
    """As a checkpoint has it, from which nothing comes but records; also amid what a row that has ended leaves to its branches."""
    live, fresh = engine(policy), engine(policy)
    ask(live, groups=2)
    while (not (live.inner._ended and live.inner.queue)) if ended else live.clock < 3:
        live.step()
    torch.save({"format": checkpoint.FORMAT, "engine": live.state_dict()}, tmp_path / "state.pt")
    fresh.load_state_dict(checkpoint.load(tmp_path)["engine"])
    assert len(fresh.inner._ended) == len(live.inner._ended) and bool(live.inner._ended) == ended
    ours, theirs = drain(live), drain(fresh)
    assert set(ours) == set(theirs) and ours
    for key, rollout in ours.items():
        assert ids(rollout) == ids(theirs[key]) and rollout.fork == theirs[key].fork
        assert torch.equal(rollout.behavior_S, theirs[key].behavior_S)
        assert torch.equal(rollout.entropy_S, theirs[key].entropy_S)


def test_counts_below_1_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        Branching(trunks=0)
    with pytest.raises(ValueError, match="at least 1"):
        Branching(places=0)


@pytest.mark.slow
@pytest.mark.parametrize("deep", [False, True])
def test_no_token_of_a_tree_is_computed_twice(policy, deep):
    """Prompts once a group, and of each row what it drew itself; the last token of a row has nothing after it."""
    live = engine(policy, trunks=2, places=2, deep=deep)
    ask(live, groups=2)
    rows = drain(live)
    prompts = {group: int(row.decisions.prompt_N[0]) for (group, _), row in rows.items()}
    alone = [row for row in rows.values() if row.fork is None]
    branches = [row for row in rows.values() if row.fork is not None]
    assert len(branches) > GROUP
    # A row that begins at the prompt puts the prompt's last token through itself, a branch the last that it took over.
    drawn = sum(row.length for row in alone) + sum(row.drawn for row in branches)
    assert live.inner.computed == sum(prompts.values()) - len(prompts) + drawn


def test_what_old_weights_computed_starts_no_branch(policy):
    live = engine(policy, trunks=1, places=1)
    ask(live, samples=range(2))
    while not live.inner.queue:
        live.step()
    assert live.inner.queue[0].cache is not None
    live.load(4, policy.state_dict())
    assert live.inner.queue[0].cache is None
    (branch,) = [row for row in drain(live).values() if row.sample == 1]
    torch.testing.assert_close(live.score(branch), branch.behavior_S, atol=1e-4, rtol=0)
