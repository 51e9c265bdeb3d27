"""A probe of the policy's states: what it is told, what it is asked, and that a peer's prediction is no bias."""

import itertools
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import small_run

from gimbal.advantages.estimators.cross_rollout import CrossRolloutBaseline
from gimbal.advantages.estimators.gae import GAE
from gimbal.advantages.estimators.leave_one_out import LeaveOneOut
from gimbal.critics.probe import Probe, ridge
from gimbal.dataflow.packing import pack
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.records import TrainBatch
from gimbal.runtime.compose import check
from gimbal.runtime.local import Trainer

G = torch.Generator().manual_seed(0)


def batch(n=8, s=6, h=3, group_size=2, value_N=None):
    mask_NS = torch.arange(s) < torch.randint(1, s + 1, (n, 1), generator=G)
    reward_NS = torch.zeros(n, s)
    reward_NS[:, 0] = torch.randn(n, generator=G)
    value_N = torch.randn(n, generator=G) if value_N is None else value_N
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=reward_NS,
        value_NS=value_N[:, None] * mask_NS,
        hidden_NSH=torch.randn(n, s, h, generator=G),
        entropy_NS=torch.rand(n, s, generator=G),
        group_N=torch.arange(n) // group_size,
    )


def advantage_N(b):
    return CrossRolloutBaseline()(b)[:, 0]


@pytest.mark.parametrize("group_size", [2, 4])
def test_the_peers_rewards_for_values_are_rloo(group_size):
    b = batch(group_size=group_size)
    b = replace(b, value_NS=b.return_N[:, None] * b.mask_NS)
    torch.testing.assert_close(CrossRolloutBaseline()(b), LeaveOneOut()(b), atol=1e-6, rtol=0)


def test_a_constant_value_is_a_constant_baseline():
    b = batch(value_N=torch.full((8,), 0.25))
    torch.testing.assert_close(advantage_N(b), b.return_N - 0.25)


def test_a_pair_is_judged_crosswise_and_a_lone_rollout_not_at_all():
    b = batch(n=4)
    v = b.value_NS[:, 0]
    torch.testing.assert_close(advantage_N(b), b.return_N - v[[1, 0, 3, 2]])
    assert (CrossRolloutBaseline()(replace(b, group_N=torch.arange(4))) == 0).all()


def test_report_is_the_share_of_variance_that_goes():
    b = batch()
    perfect = replace(b, value_NS=b.return_N[[1, 0, 3, 2, 5, 4, 7, 6]][:, None] * b.mask_NS)
    assert CrossRolloutBaseline().report(perfect)["baseline/explained"] == pytest.approx(1.0)
    equal = replace(b, reward_NS=torch.zeros_like(b.reward_NS))
    assert CrossRolloutBaseline().report(equal)["baseline/explained"] == 0.0


def test_on_a_bandit_the_peer_s_features_are_unbiased_and_one_s_own_are_not():
    """Exact expectation over both rollouts of a two-armed bandit; the probe sees which arm was drawn."""
    p, reward = 0.3, {0: 0.0, 1: 1.0}
    true = p * (1 - p) * (reward[1] - reward[0])  # of the expected reward, in the logit
    expected = {"peer": 0.0, "own": 0.0}
    for arms in itertools.product((0, 1), repeat=2):
        chance = torch.tensor([(1 - p, p)[arm] for arm in arms]).prod().item()
        score_N = torch.tensor([arm - p for arm in arms])  # gradient of the log-probability
        b = TrainBatch(
            mask_NS=torch.ones(2, 1, dtype=torch.bool),
            reward_NS=torch.tensor([[reward[arm]] for arm in arms]),
            value_NS=torch.tensor([[0.2 + 0.5 * arm] for arm in arms]),
            bootstrap_N=torch.zeros(2),
            group_N=torch.zeros(2, dtype=torch.long),
        )
        for name, estimate in (("peer", CrossRolloutBaseline()), ("own", GAE(gamma=1.0, lam=1.0))):
            expected[name] += chance * float((estimate(b)[:, 0] * score_N).mean())
    assert expected["peer"] == pytest.approx(true, abs=1e-6)
    assert expected["own"] == pytest.approx(true / 2, abs=1e-6)  # half of the reward's difference is explained away


@pytest.mark.parametrize(("count", "width"), [(30, 4), (5, 12)])
def test_ridge_solves_its_normal_equations(count, width):
    x, y = torch.randn(count, width, generator=G).double(), torch.randn(count, generator=G).double()
    x[:, 0] = 7.0
    fit = ridge(x, y, 0.3)
    z = (x - fit["mean_F"]) / fit["scale_F"]
    weight_F = fit["weight_F"].clone().requires_grad_()
    loss = (y - fit["constant"] - z @ weight_F).square().mean() + 0.3 * weight_F.square().sum()
    (gradient_F,) = torch.autograd.grad(loss, weight_F)
    torch.testing.assert_close(gradient_F, torch.zeros_like(gradient_F), atol=1e-10, rtol=0)
    assert fit["weight_F"][0] == 0 and fit["constant"] == y.mean()
    flat = ridge(x, y, 1e12)
    torch.testing.assert_close(z @ flat["weight_F"], torch.zeros(count).double(), atol=1e-9, rtol=0)


def test_features_by_hand_and_the_prompt_s_alone():
    b = TrainBatch(
        mask_NS=torch.tensor([[True, True, True, False]]),
        hidden_NSH=torch.tensor([[[1.0], [3.0], [5.0], [100.0]]]),
        entropy_NS=torch.tensor([[0.0, 0.0, 3.0, 100.0]]),
    )
    found = Probe(window=2).load(0).features(b)
    torch.testing.assert_close(found, torch.tensor([[1.0, 4.0, 1.0, 2**0.5, 3.0]]))
    assert Probe(window=0).load(0).features(b).tolist() == [[1.0]]


def test_a_probe_is_told_of_the_others_rewards_and_forgets():
    live = Probe(steps=2, ridge=1e-9).load(0)
    batches = [batch(n=40) for _ in range(4)]
    # The reward of a rollout is the first feature of its peer, so each rollout's features tell the target exactly.
    told = []
    for b in batches:
        peer_N = torch.arange(40) ^ 1
        reward_NS = torch.zeros_like(b.reward_NS)
        reward_NS[:, 0] = live.features(b)[peer_N, 0]
        told.append(replace(b, reward_NS=reward_NS))
        assert (live.columns(told[-1])["value_NS"] == 0).all() == (len(told) == 1)
        live.observe(told[-1])
    value_N = live.columns(told[0])["value_NS"][:, 0]
    torch.testing.assert_close(value_N, live.features(told[0])[:, 0], atol=1e-4, rtol=0)
    assert [len(target) for _, target in live.seen] == [40, 40]


def test_lone_rollouts_and_empty_rows_are_no_targets():
    live = Probe().load(0)
    live.observe(batch(group_size=1))
    assert not live.fit and (live.columns(batch())["value_NS"] == 0).all()
    b = batch()
    live.observe(replace(b, mask_NS=b.mask_NS & (torch.arange(8) > 1)[:, None]))
    assert len(live.seen[-1][1]) == 6 and all(torch.isfinite(x).all() for x in live.fit.values())


RUN = {"critic": Probe(), "advantage": CrossRolloutBaseline(), "num_generations": 2, "prompts_per_step": 6}


def test_predictions_come_of_earlier_batches_and_survive_a_checkpoint():
    trainer = Trainer(small_run(**RUN))
    trainer.begin()
    learner = trainer.learner
    first = pack(trainer.pipeline.next_batch(0)[0])
    prepared = learner.prepare(first)
    assert (prepared.value_NS == 0).all()
    learner.step(prepared)
    second = learner.prepare(first)
    turned = learner.prepare(replace(first, reward_NS=1 - first.reward_NS))  # rewards of the batch itself do not matter
    assert (second.value_NS != 0).any() and torch.equal(second.value_NS, turned.value_NS)
    state = learner.save_state()
    other = Trainer(small_run(**RUN)).learner
    other.policy.load_state_dict(learner.policy.state_dict())
    other.load_state(state)
    torch.testing.assert_close(other.prepare(first).value_NS, second.value_NS)
    trainer.close()


def test_what_cannot_be_is_said():
    with pytest.raises(ValueError, match="fitted after each step"):
        check(small_run(**RUN, regularisers=(ValueLoss(),)))
    with pytest.raises(ValueError, match="compares the rollouts"):
        check(small_run(**{**RUN, "num_generations": 1}))
    with pytest.raises(ValueError, match="ridge"):
        Probe(ridge=0.0)
