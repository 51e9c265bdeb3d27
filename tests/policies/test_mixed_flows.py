"""A flow beside another's: the mix of their velocities against Euler steps taken here, its limiting cases, and what is refused."""

import json
import math
from dataclasses import replace

import pytest
import torch

from gimbal import api, recipes
from gimbal.ops import philox
from gimbal.policies.best_of import BestOf
from gimbal.runtime.local import Trainer

SIZES = {"observations": 3, "actions": 2, "hidden": (8,), "bound": 1.5}
SPEC = BestOf(**SIZES, proposals=4, flow_steps=3)
G = torch.Generator().manual_seed(0)
SEEN = torch.randn(6, 3, generator=G)


@pytest.fixture
def other(tmp_path):
    """Where another policy was saved, of another width."""
    replace(SPEC, hidden=(5, 5)).load(7).save(tmp_path / "other")
    return str(tmp_path / "other")


def proposed(policy):
    return policy.propose(SEEN, policy.noise(philox("mixed"), len(SEEN)))


def test_the_mix_is_of_velocities_at_each_step(other):
    policy, theirs = replace(SPEC, beside=other, share=0.3).load(1), replace(SPEC, hidden=(5, 5)).load(7)
    x = policy.noise(philox("mixed"), 6)[:, :8].reshape(24, 2)
    seen = SEEN.repeat_interleave(4, 0)
    with torch.no_grad():
        for number in range(3):
            at = torch.cat([seen, x, torch.full((24, 1), number / 3)], -1)
            x = x + (0.7 * policy.flow.net(at) + 0.3 * theirs.flow.net(at)) / 3
    torch.testing.assert_close(proposed(policy), x.clamp(-1, 1).reshape(6, 4, 2))


def test_share_0_is_this_flow_and_1_the_other_bit_for_bit(other):
    own, theirs = proposed(SPEC.load(1)), proposed(replace(SPEC, hidden=(5, 5)).load(7))
    assert torch.equal(proposed(replace(SPEC, beside=other, share=0.0).load(1)), own)
    assert torch.equal(proposed(replace(SPEC, beside=other, share=1.0).load(1)), theirs)
    assert not torch.equal(own, theirs)


def test_twice_the_same_flow_is_that_flow(tmp_path):
    SPEC.load(1).save(tmp_path / "same")
    for share in (0.2, 0.7):
        mixed = proposed(replace(SPEC, beside=str(tmp_path / "same"), share=share).load(1))
        torch.testing.assert_close(mixed, proposed(SPEC.load(1)))


def test_errors_that_point_apart_cancel_at_the_share_that_theory_names(tmp_path):
    """Velocities that are off by constants e and f in all: the mean squared error of the end is least at
    (|e|^2 - e f) / |e - f|^2 of the other, and below both parents."""

    def constant(seed, off):
        policy = replace(SPEC, flow_steps=4).load(seed)
        for weight in policy.flow.parameters():
            torch.nn.init.zeros_(weight)
        with torch.no_grad():
            policy.flow.net[-1].bias.copy_(off)
        policy.save(tmp_path / str(seed))
        return str(tmp_path / str(seed))

    e, f = torch.tensor([0.05, 0.02]), torch.tensor([-0.02, 0.01])
    first, second = constant(1, e), constant(2, f)
    noise = 0.1 * replace(SPEC, model=first).load().noise(philox("mixed"), 6)

    def error(share):
        policy = replace(SPEC, model=first, beside=second, share=share).load()
        with torch.no_grad():
            apart = policy.propose(SEEN, noise) - noise[:, :8].reshape(6, 4, 2)
        return float(apart.square().sum(-1).mean())

    best = float((e @ e - e @ f) / (e - f).square().sum())
    assert 0.1 < best < 0.9
    for share in (0.0, best - 0.05, best + 0.05, 1.0):
        assert error(best) < error(share)


def test_the_other_flow_is_neither_trained_nor_saved_nor_sent(other, tmp_path):
    policy, plain = replace(SPEC, beside=other).load(1), SPEC.load(1)
    assert policy.state_dict().keys() == plain.state_dict().keys()
    assert len([*policy.parameters()]) == len([*plain.parameters()])
    policy.save(tmp_path / "saved")
    again = replace(SPEC, model=str(tmp_path / "saved"), beside=other).load()
    assert torch.equal(proposed(again), proposed(policy))
    assert torch.equal(proposed(replace(SPEC, model=str(tmp_path / "saved")).load()), proposed(plain))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"share": 0.3}, r"there is none: set policy\.beside"),
        ({"beside": "there", "share": 1.5}, r"share is 1\.5"),
        ({"beside": "there", "share": math.nan}, "share is nan"),
        ({"beside": "there", "normalize": True}, r"set policy\.normalize=false"),
    ],
)
def test_shares_that_mean_nothing_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        replace(SPEC, **settings)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("bound", 2.0, "bound 2.0, and in this environment it must be 1.5"),
        ("edits", None, "holds no flow: policy.beside is"),
    ],
)
def test_another_environments_flow_is_refused(other, name, value, said):
    path = f"{other}/config.json"
    with open(path) as file:
        config = json.load(file)
    config[name] = value
    with open(path, "w") as file:
        json.dump({key: x for key, x in config.items() if x is not None}, file)
    with pytest.raises(ValueError, match=said):
        replace(SPEC, beside=other).load()


def test_a_run_is_evaluated_beside_another(tmp_path):
    pytest.importorskip("h5py")
    found = []
    for seed in (0, 1):
        run = replace(recipes.load("idql", {"steps": "1", "store.moves": "2"}), seed=seed)
        trainer = Trainer(run)
        trainer.begin()
        trainer.advance()
        trainer.close()
        trainer.learner.policy.save(tmp_path / str(seed))
        found.append(run.policy.at(tmp_path / str(seed)))
    held_out = replace(run.held_out, tasks=replace(run.held_out.tasks, size=2))
    for share, returns in ((0.0, found[0]), (1.0, found[1]), (0.5, None)):
        mixed = replace(found[0], beside=str(tmp_path / "1"), share=share, proposals=1)
        scores = [
            api.evaluate(replace(run, policy=policy, held_out=held_out)).metrics()["eval/score"]
            for policy in (mixed, *([] if returns is None else [replace(returns, proposals=1)]))
        ]
        assert len(set(scores)) == 1
