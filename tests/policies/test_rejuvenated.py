"""Rejuvenated: fusion and resets on a tuned copy of the shipped model, and what a diagnosis sees."""

import copy

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from gimbal.policies.rejuvenated import FeedForward, Rejuvenated, activities, diagnosis, feed_forwards
from gimbal.policies.token import CausalLM
from gimbal.recipes.papers.data.rejuvenation import PROBE

TEXTS = ("12 + 30 =\n<answer>42</answer>", "7 - 9 =\n<answer>-2</answer>")


@pytest.fixture(scope="module")
def base():
    return CausalLM().load()


@pytest.fixture(scope="module")
def tuned(base, tmp_path_factory):
    """The shipped model with noise on every weight, and most on unit 5 of the second layer."""
    policy = copy.deepcopy(base)
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.parameters():
            weight += 0.05 * weight.std().nan_to_num(1.0) * torch.randn(weight.shape, generator=g)
        list(feed_forwards(policy.model))[1].tensors[0][0][5] += 3.0
    where = tmp_path_factory.mktemp("tuned")
    policy.save(where)
    return policy, str(where)


def weights(policy):
    return dict(policy.model.named_parameters())


def equal(a, b, only=""):
    a, b = weights(a), weights(b)
    return all(torch.equal(a[name], b[name]) for name in a if only in name)


def test_all_kept_and_none_reset_is_the_tuned_model(tuned):
    assert equal(Rejuvenated(model=tuned[1], keep=1.0, reset=0.0).load(), tuned[0])


def test_none_kept_is_the_base(tuned, base):
    assert equal(Rejuvenated(model=tuned[1], keep=0.0, reset=0.0).load(), base)


def test_all_reset_are_the_feed_forward_layers_of_the_base(tuned, base):
    made = Rejuvenated(model=tuned[1], keep=1.0, reset=1.0).load()
    assert equal(made, base, ".mlp.") and equal(made, tuned[0], "self_attn") and not equal(made, base, "self_attn")


def test_a_model_that_was_not_tuned_is_refused(base, tmp_path):
    base.save(tmp_path)  # a copy is no tuning either
    for spec in (Rejuvenated(), Rejuvenated(keep=0.5, reset=0.5, probe=TEXTS, model=str(tmp_path))):
        with pytest.raises(ValueError, match="nothing to make plastic again: set policy"):
            spec.load()


def test_every_tensor_is_fused_in_proportion(tuned, base):
    made = weights(Rejuvenated(model=tuned[1], keep=0.25, reset=0.0).load())
    for name, weight in weights(base).items():
        torch.testing.assert_close(made[name], 0.75 * weight + 0.25 * weights(tuned[0])[name], atol=1e-6, rtol=1e-5)


def test_a_cap_bounds_the_relative_drift(tuned, base):
    made, start, end = (
        weights(Rejuvenated(model=tuned[1], keep=1.0, cap=0.03, reset=0.0).load()),
        weights(base),
        weights(tuned[0]),
    )
    for name, weight in start.items():
        mine, whole = ((x - weight).detach().norm() / weight.detach().norm() for x in (made[name], end[name]))
        torch.testing.assert_close(mine, whole.clamp(max=0.03), atol=1e-6, rtol=1e-3)


def test_the_most_rigid_unit_is_reset_first(tuned, base):
    made = Rejuvenated(model=tuned[1], keep=1.0, reset=1 / 384).load()
    layers = [list(feed_forwards(policy.model)) for policy in (made, base, tuned[0])]
    for number, (mine, start, end) in enumerate(zip(*layers, strict=True)):
        back_U = (mine.weights() == start.weights()).all(1)
        assert back_U.sum() == 1 and torch.equal(mine.weights()[~back_U], end.weights()[~back_U])
        assert back_U[5] if number == 1 else True


def test_rigidity_is_drift_over_activity_and_dormant_units_come_first():
    """Units by hand: drifts 1, 1, 2 and variances of 1.5, 0.4 and 1.1 times their mean: rigidity 0.67, 2.5, 1.82."""
    spec = Rejuvenated(reset=1 / 3, dormant=0.5, probe=TEXTS)
    start = FeedForward("a", ((torch.eye(3), 0),), torch.nn.Identity())
    end = FeedForward("a", ((torch.diag(torch.tensor([2.0, 2.0, 3.0])), 0),), torch.nn.Identity())
    variance_U, size_U = torch.tensor([3.0, 0.8, 2.2]).double(), torch.ones(3).double()
    assert spec._rigid(end, start, variance_U, size_U).tolist() == [False, True, False]
    assert spec._rigid(end, start, size_U, size_U).tolist() == [False, False, True]
    asleep_U = torch.tensor([0.1, 1.0, 1.0]).double()
    assert spec._rigid(end, start, variance_U, asleep_U).tolist() == [True, False, False]


def test_noise_is_drawn_by_the_seed(tuned):
    first, again, other = (Rejuvenated(model=tuned[1], reset=0.1, noise=0.1).load(seed) for seed in (0, 0, 1))
    assert equal(first, again) and not equal(first, other, ".mlp.")


def test_activities_of_the_layer_by_hand(base):
    layers = list(feed_forwards(base.model))
    assert len(layers) == 5 and layers[0].weights().shape == (384, 3 * 128)
    (variance_U, size_U), *_ = activities(base, layers[:1], ("1+2=",))
    ids = torch.tensor([base.tokenizer.encode("1+2=")])
    block = base.model.base_model.layers[0]
    seen = []
    hook = block.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        base.model(input_ids=ids)
    hook.remove()
    with torch.no_grad():
        x_LU = (block.mlp.act_fn(block.mlp.gate_proj(seen[0])) * block.mlp.up_proj(seen[0]))[0].double()
    torch.testing.assert_close(variance_U, x_LU.var(0, correction=0), atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(size_U, x_LU.abs().mean(0), atol=1e-6, rtol=1e-4)
    ones_U = torch.ones(384, dtype=torch.float64)
    assert all(torch.equal(x, ones_U) for x in activities(base, layers, ())[0])


def test_gpt2_keeps_its_weights_the_other_way_round():
    model = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=11))
    layers = list(feed_forwards(model))
    assert len(layers) == 2 and layers[0].weights().shape == (32, 16) and layers[0].tensors[1][0].shape == (32,)


def test_a_sure_and_sharp_model_shows(base):
    sure = copy.deepcopy(base)
    with torch.no_grad():
        sure.model.base_model.norm.weight *= 4
    before = {name: weight.clone() for name, weight in weights(sure).items()}
    calm, strained = diagnosis(base, TEXTS), diagnosis(sure, TEXTS)
    assert strained["entropy"] < calm["entropy"] and strained["confidence"] > calm["confidence"]
    assert diagnosis(base, TEXTS) == calm
    assert diagnosis(base, PROBE, noise=0.1)["sharpness"] > 10 * diagnosis(base, PROBE)["sharpness"] > 0
    assert all(torch.equal(weight, before[name]) for name, weight in weights(sure).items())


@pytest.mark.parametrize("wrong", [{"keep": 1.5}, {"reset": -0.1}, {"dormant": 0.1}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="Rejuvenated"):
        Rejuvenated(**wrong)


def test_a_diagnosis_reads_something(base):
    for texts in ((), ("7",)):
        with pytest.raises(ValueError, match="two tokens"):
            diagnosis(base, texts)
