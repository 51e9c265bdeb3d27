"""Critics of several values in a whole learner step."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import small_run

from gimbal.advantages.estimators.gae import GAE
from gimbal.critics.members import Ensemble
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.packing import pack
from gimbal.objectives.masks.disagreement import DisagreementMask
from gimbal.objectives.regularisers.agreement_entropy_bonus import AgreementEntropyBonus
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.objectives.values.member_value_loss import SHARD, EnsembleValueLoss, MultiHorizonValueLoss
from gimbal.objectives.values.value_loss import ValueLoss
from gimbal.recipes.papers.control.cartpole_horizons import cartpole_horizons
from gimbal.recipes.papers.credit.asyppo import asyppo
from gimbal.recipes.papers.credit.target_decoupling import target_decoupling
from gimbal.runtime.local import Trainer

TWO = Ensemble(critics=(HiddenValue(hidden=(8,)), HiddenValue(hidden=(8,))))
ONE = Ensemble(critics=(HiddenValue(hidden=(8,)),))


def gradients(run, rows_of=None):
    """Of policy and critic, from the first batch, or from those of its rows that ``rows_of`` picks."""
    trainer = Trainer(run)
    trainer.begin()
    try:
        learner = trainer.learner
        batch = learner.prepare(pack(trainer.pipeline.next_batch(0)[0]))
        if rows_of is not None:
            batch = batch.select(rows_of(batch))
        learner.forward_backward(batch)
        return batch, [[p.grad for p in half.parameters()] for half in (learner.policy, learner.models["critic"])]
    finally:
        trainer.close()


def run_of(critic, *regularisers, **changes):
    return small_run(critic=critic, advantage=GAE(gamma=1.0, lam=1.0), regularisers=regularisers, **changes)


def close(first, second):
    for x, y in zip(first, second, strict=True):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-5)


def test_one_member_and_no_shares_is_ppo_with_an_entropy_bonus():
    masked = run_of(ONE, EnsembleValueLoss(), AgreementEntropyBonus(share=0.0), masks=(DisagreementMask(share=0.0),))
    plain = run_of(ONE, ValueLoss(), EntropyBonus(coef=1e-3))
    for first, second in zip(gradients(masked)[1], gradients(plain)[1], strict=True):
        close(first, second)


def test_the_mean_of_the_members_is_the_value_of_the_advantage():
    batch = gradients(run_of(TWO, EnsembleValueLoss()))[0]
    torch.testing.assert_close(batch.value_NS, batch.value_NSM.mean(-1))
    expected_NS = (batch.return_N[:, None] - batch.value_NSM.mean(-1)) * batch.mask_NS
    torch.testing.assert_close(batch.advantage_NS, expected_NS, atol=1e-6, rtol=0)


@pytest.mark.slow
def test_a_member_s_gradient_is_that_of_its_own_shard():
    loss = EnsembleValueLoss()
    whole = gradients(run_of(TWO, loss))[1][1]
    for m, (start, stop) in enumerate([(0, len(whole) // 2), (len(whole) // 2, len(whole))]):
        batch, (_, shard) = gradients(
            run_of(TWO, EnsembleValueLoss(disjoint=False)), lambda b, m=m: (loss.survey(b)[SHARD] == m).nonzero()[:, 0]
        )
        share = batch.mask_NS.sum() / gradients(run_of(TWO, loss))[0].mask_NS.sum()
        for one, other in zip(whole[start:stop], shard[start:stop], strict=True):
            torch.testing.assert_close(one, 2 * share * other, atol=1e-6, rtol=1e-4)


def test_other_horizons_leave_the_actor_alone():
    """The policy's gradient is that of PPO with the longest discount; a trunk's gradient is what changes it."""
    heads = HiddenValue(hidden=(8,), heads=3)
    far = GAE(gamma=0.999, lam=0.95)
    many = MultiHorizonValueLoss(gammas=(0.5, 0.9, 0.999))
    decoupled, other = (
        gradients(replace(run_of(heads, replace(many, gammas=gammas)), advantage=far))
        for gammas in [(0.5, 0.9, 0.999), (0.1, 0.2, 0.999)]
    )
    close(decoupled[1][0], other[1][0])
    assert any((x != y).any() for x, y in zip(decoupled[1][1], other[1][1], strict=True))
    shared = replace(heads, trunk_gradient=True)
    reached = gradients(replace(run_of(shared, many), advantage=far))[1][0]
    assert any((x != y).any() for x, y in zip(decoupled[1][0], reached, strict=True))


def test_recipes_have_a_value_for_every_discount_and_the_actor_the_longest():
    for run in (target_decoupling(), cartpole_horizons()):
        gammas = run.regularisers[0].gammas
        assert len(gammas) == run.critic.heads and run.advantage.gamma == gammas[-1] == max(gammas)
    assert len(asyppo().critic.critics) == 2
