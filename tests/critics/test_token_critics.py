"""Critics of texts: what state a value is of, which weights learn from it, and the advantage that comes of it."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import small_run

from gimbal.advantages import GAE
from gimbal.critics.tokens import HiddenValue, TrunkValue
from gimbal.dataflow.packing import pack
from gimbal.objectives import ValueLoss
from gimbal.policies.token import CausalLM, Tokens
from gimbal.runtime.local import Trainer

SPECS = [HiddenValue(), HiddenValue(hidden=(8,), heads=3), TrunkValue(layers=1), TrunkValue(layers=2, heads=2)]
PPO = {"advantage": GAE(gamma=1.0, lam=1.0), "regularisers": (ValueLoss(),)}


@pytest.fixture(scope="module")
def policy():
    return CausalLM().load()


def row(*decisions, prompt=(5, 6, 7)):
    return Tokens.row(list(prompt), list(decisions))


def hidden_NSH(policy, decisions):
    return policy.evaluate(decisions, columns=("hidden_NSH",)).columns["hidden_NSH"]


def wake(critic):
    """Weights of a size at which values differ."""
    for p in critic.head.parameters():
        torch.nn.init.normal_(p, generator=torch.Generator().manual_seed(p.numel()))
    return critic


@pytest.mark.parametrize("spec", SPECS, ids=str)
@torch.no_grad()
def test_a_value_is_of_the_state_before_its_decision(policy, spec):
    critic = wake(spec.load(0))
    first, second = row(10, 11, 12), row(10, 11, 13)
    values = [critic.value(d, hidden_NSH(policy, d))[0] for d in (first, second, row(10, 20, 12))]
    torch.testing.assert_close(values[0], values[1])  # the last decision is not yet taken in any of them
    torch.testing.assert_close(values[0][:, :2], values[2][:, :2])
    assert (values[0][:, 2] - values[2][:, 2]).abs().item() > 1e-4


@pytest.mark.parametrize("spec", SPECS, ids=str)
@torch.no_grad()
def test_rows_together_give_the_rows_apart_and_nothing_after_the_end(policy, spec):
    critic = wake(spec.load(0))
    rows = [row(10, 11, 12), row(13), row(14, 15, prompt=(8, 9))]
    together = Tokens.stack(rows)
    value_NSM, final_NM = critic.members(together, hidden_NSH(policy, together))
    assert value_NSM.shape == (3, 3, spec.heads) and (final_NM == 0).all()
    for n, alone in enumerate(rows):
        length = alone.shape[1]
        apart_NSM = critic.members(alone, hidden_NSH(policy, alone))[0]
        torch.testing.assert_close(value_NSM[n : n + 1, :length], apart_NSM, atol=1e-5, rtol=1e-5)
        assert (value_NSM[n, length:] == 0).all()


def test_only_a_trunk_gradient_reaches_the_policy(policy):
    decisions = row(10, 11)
    for spec in (HiddenValue(), HiddenValue(trunk_gradient=True)):
        critic = wake(spec.load(0))
        loss = critic.value(decisions, hidden_NSH(policy, decisions))[0].square().sum()
        gradients = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
        assert any(g is not None and bool(g.any()) for g in gradients) == spec.trunk_gradient


def test_a_cut_trunk_is_smaller_and_its_own():
    whole, cut = TrunkValue().load(0), TrunkValue(layers=1).load(0)
    assert len(cut.trunk.layers) == 1 and len(whole.trunk.layers) == 5
    fresh = TrunkValue(trunk=CausalLM(fresh=True), layers=1).load(0)
    assert not torch.equal(fresh.trunk.embed_tokens.weight, cut.trunk.embed_tokens.weight)


def test_a_wrong_width_says_the_right_one(policy):
    with pytest.raises(ValueError, match="width=128"):
        HiddenValue(width=64).load(0).value(row(1), hidden_NSH(policy, row(1)))


@pytest.mark.parametrize("spec", [HiddenValue(hidden=(16,)), TrunkValue(layers=1)], ids=str)
def test_a_step_moves_the_value_towards_the_return(spec):
    trainer = Trainer(small_run(critic=spec, **PPO))
    trainer.begin()
    batch = trainer.learner.prepare(pack(trainer.pipeline.next_batch(0)[0]))
    # A fresh value is nearly 0, so with gamma = lam = 1 the advantage is nearly the reward, and the target exactly.
    return_NS = batch.return_N[:, None] * batch.mask_NS
    torch.testing.assert_close(batch.target_NS * batch.mask_NS, return_NS, atol=1e-5, rtol=0)
    before = (batch.value_NS - return_NS)[batch.mask_NS].square().mean()
    for _ in range(3):
        trainer.learner.step(batch)
    after = (trainer.learner.prepare(batch).value_NS - return_NS)[batch.mask_NS].square().mean()
    trainer.close()
    assert after < before


def test_micro_batches_of_a_critic_give_the_gradient_of_the_whole():
    found = []
    for tokens in (10**6, 60):
        run = small_run(critic=HiddenValue(hidden=(16,), trunk_gradient=True), **PPO)
        trainer = Trainer(replace(run, optimization=replace(run.optimization, microbatch_tokens=tokens)))
        trainer.begin()
        learner = trainer.learner
        batch = learner.prepare(pack(trainer.pipeline.next_batch(0)[0]))
        learner.forward_backward(batch)
        found.append(
            (batch.value_NS, [p.grad for p in (*learner.policy.parameters(), *learner.models["critic"].parameters())])
        )
        trainer.close()
    torch.testing.assert_close(found[0][0], found[1][0], atol=1e-6, rtol=1e-5)
    for whole, split in zip(found[0][1], found[1][1], strict=True):
        torch.testing.assert_close(whole, split, atol=1e-6, rtol=1e-4)
