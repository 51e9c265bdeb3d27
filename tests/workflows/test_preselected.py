"""Which candidates are drawn in full, that they are the ones whose drafts were ranked, and what the others cost."""

from collections import Counter
from dataclasses import dataclass, replace

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.records import Drop, Group, Task
from gimbal.rewards.base import AbstractReward
from gimbal.workflows.preselected import Preselected
from gimbal.workflows.runner import Driven
from gimbal.workflows.single import SingleTurn

SAMPLING = PathSampling(max_length=6, sampler="ode")
COUNT = 12


@dataclass(frozen=True, kw_only=True)
class Bright(AbstractReward):
    """The mean of an image; none of the samples in ``silent`` has one."""

    name: str = "bright"
    silent: tuple[int, ...] = ()

    def __call__(self, group: Group) -> list[float | None]:
        return [None if row.sample in self.silent else light(row) for row in group.rollouts]


def light(row):
    return float(row.decisions.sample_ND.mean())


@pytest.fixture(scope="module")
def policy():
    torch.set_num_threads(1)
    return Denoiser(batch=16).load(0)


def started(policy, workflow):
    live = Driven(engine=Denoising(slots=7), workflow=workflow).start(policy)
    live.load(0, policy.weights())
    return live


def asked(live, count=COUNT, **sampling):
    for sample in range(count):
        live.submit(Request(group=0, task=Task(id="t"), sample=sample, sampling=replace(SAMPLING, **sampling), seed=3))
    return live


def outcomes(live):
    return {key[1]: finished.outcome for key, finished in drained(live).items()}


def plain(policy, **sampling):
    return {
        sample: outcome.last for sample, outcome in outcomes(asked(started(policy, SingleTurn()), **sampling)).items()
    }


def kept(found):
    return {sample: outcome for sample, outcome in found.items() if not isinstance(outcome, Drop)}


def same(one, other):
    return torch.equal(one.decisions.state_NXD, other.decisions.state_NXD) and torch.equal(
        one.behavior_S, other.behavior_S
    )


def test_the_best_and_worst_drafts_are_drawn_in_full_and_the_others_counted(policy):
    drafts = plain(policy, max_length=2)
    by_light = sorted(range(COUNT), key=lambda sample: light(drafts[sample]))
    found = outcomes(asked(started(policy, Preselected(draft=2, keep=4, reward=Bright()))))
    assert set(kept(found)) == {*by_light[:2], *by_light[-2:]}
    whole = plain(policy)
    for sample, outcome in kept(found).items():
        row = outcome.last
        assert same(row, whole[sample]), "from the same noise: what it would have been without drafts"
        assert (outcome.spent, outcome.drawn, row.length) == (2, 8, 6)
    dropped = [outcome for outcome in found.values() if isinstance(outcome, Drop)]
    assert Counter((drop.reason, drop.drawn) for drop in dropped) == {("unselected", 2): COUNT - 4}


def test_with_all_kept_it_is_a_single_turn_to_the_bit(policy):
    whole = plain(policy)
    found = outcomes(asked(started(policy, Preselected(draft=2, keep=COUNT, reward=Bright()))))
    assert all(same(found[sample].last, whole[sample]) and not found[sample].spent for sample in range(COUNT))


def test_at_full_length_nothing_is_drawn_twice(policy):
    whole = plain(policy)
    by_light = sorted(range(COUNT), key=lambda sample: light(whole[sample]))
    found = outcomes(asked(started(policy, Preselected(draft=6, keep=6, reward=Bright()))))
    assert set(kept(found)) == {*by_light[:3], *by_light[-3:]}
    assert sum(outcome.drawn for outcome in found.values()) == 6 * COUNT
    assert all(same(outcome.last, whole[sample]) for sample, outcome in kept(found).items())


def test_drafts_without_a_reward_are_not_chosen_and_too_few_drop_the_group(policy):
    found = outcomes(asked(started(policy, Preselected(draft=2, keep=4, reward=Bright(silent=(0, 1, 2, 3))))))
    assert len(kept(found)) == 4 and not {0, 1, 2, 3} & set(kept(found))
    none = outcomes(asked(started(policy, Preselected(draft=2, keep=4, reward=Bright(silent=tuple(range(9)))))))
    assert not kept(none) and len(none) == COUNT


def test_a_group_is_saved_between_drafts_and_samples(policy):
    def begun():
        return asked(started(policy, Preselected(draft=2, keep=4, reward=Bright())))

    expected = outcomes(begun())
    live, early = begun(), {}
    for _ in range(6):  # 12 drafts of two steps in seven slots take four; what follows are samples
        early |= {item.key[1]: item.outcome for item in live.step()}
    again = started(policy, Preselected(draft=2, keep=4, reward=Bright()))
    again.load_state_dict(live.state_dict())
    found = early | outcomes(again)
    assert set(kept(found)) == set(kept(expected))
    assert all(same(found[sample].last, outcome.last) for sample, outcome in kept(expected).items())


def test_what_it_cannot_be_is_said():
    for wrong in ({"draft": 0}, {"keep": 1}, {"keep": 5}):
        with pytest.raises(ValueError, match="an even number"):
            Preselected(reward=Bright(), **wrong)
