"""Residual networks of SimBa: what they compute, written out here; limiting cases; what is refused."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.policies.control import output_of
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.residual import ResidualBlock, residual_mlp
from gimbal.policies.squashed import SquashedGaussian
from gimbal.runtime.local import Trainer

SPEC = SquashedGaussian(observations=3, actions=2, hidden=(8,), blocks=2, bound=1.5, normalize=True)
CRITIC = ActionValues(observations=3, actions=2, hidden=(8,), blocks=2, bound=1.5, members=3)


def norm(x, layer):
    apart = x - x.mean(-1, keepdim=True)
    return layer.weight * apart / (apart.square().mean(-1, keepdim=True) + 1e-5).sqrt() + layer.bias


def by_hand(net, x):
    first, *blocks, last_norm, head = net
    x = x @ first.weight.T + first.bias
    for block in blocks:
        wide = torch.relu(norm(x, block.norm) @ block.up.weight.T + block.up.bias)
        x = x + wide @ block.down.weight.T + block.down.bias
    return norm(x, last_norm) @ head.weight.T + head.bias


def test_the_network_is_embedding_blocks_norm_and_head():
    net, x = residual_mlp(5, 8, 4, 3, seed=1), torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    for weight in net.parameters():
        weight.data += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel()))
    assert torch.allclose(output_of(net, x), by_hand(net, x), atol=1e-5)
    assert net[1].up.weight.shape == (32, 8) and net[1].down.weight.shape == (8, 32), "four times as wide inside"


def test_without_blocks_and_norm_it_is_linear():
    first, last_norm, last = residual_mlp(5, 8, 4, 0, seed=1)
    assert isinstance(last_norm, nn.LayerNorm)
    x, linear = torch.randn(6, 5), nn.Sequential(first, last)
    assert torch.allclose(output_of(linear, x), x @ (last.weight @ first.weight).T, atol=1e-5)


def test_a_block_that_adds_nothing_passes_on_what_it_is_given():
    block, x = ResidualBlock(8, torch.Generator().manual_seed(0)), torch.randn(6, 8)
    block.down.weight.data.zero_()
    assert torch.equal(block(x), x)


def test_first_weights_are_orthogonal_outside_and_of_he_s_spread_inside_and_those_of_the_seed():
    net = residual_mlp(256, 256, 256, 1, seed=3)
    for linear in (net[0], net[-1]):
        assert torch.allclose(linear.weight @ linear.weight.T, torch.eye(256), atol=1e-4)
    assert float(net[1].up.weight.detach().std()) == pytest.approx((2 / 256) ** 0.5, rel=0.02)
    assert float(net[1].down.weight.detach().std()) == pytest.approx((2 / 1024) ** 0.5, rel=0.02)
    again, other = residual_mlp(256, 256, 256, 1, seed=3), residual_mlp(256, 256, 256, 1, seed=4)
    assert all(torch.equal(x, y) for x, y in zip(net.parameters(), again.parameters(), strict=True))
    assert not torch.equal(net[1].up.weight, other[1].up.weight)


def test_each_critic_has_a_network_of_its_own_that_reads_observation_and_action():
    critic = CRITIC.load(0)
    seen, did = torch.randn(7, 3), 1.5 * torch.rand(7, 2)
    q_KM = critic(seen, did)
    x = torch.cat([seen, did / 1.5], -1)
    assert torch.allclose(q_KM, torch.cat([by_hand(net, x) for net in critic.nets], -1), atol=1e-5)
    assert len(set(q_KM[0].tolist())) == 3
    with pytest.raises(ValueError, match="the critic reads 5 numbers, but observation and action have 6"):
        critic(torch.randn(7, 4), did)


@pytest.mark.parametrize("spec", [SPEC, Deterministic(observations=3, actions=2, hidden=(8,), blocks=1, bound=1.5)])
def test_a_saved_policy_comes_back_with_its_blocks(tmp_path, spec):
    policy = spec.load(5)
    policy.save(tmp_path)
    again = replace(spec, model=str(tmp_path), blocks=0, hidden=(64,)).load(0)
    assert again.state_dict().keys() == policy.state_dict().keys()
    assert all(torch.equal(x, again.state_dict()[name]) for name, x in policy.state_dict().items())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: replace(SPEC, hidden=(8, 8)), r"hidden has 2 widths.*hidden=\[128\]"),
        (lambda: replace(SPEC, blocks=-1), "blocks is -1"),
        (lambda: replace(CRITIC, hidden=(8, 8)), "hidden has 2 widths"),
        (lambda: replace(CRITIC, layer_norm=True), "have layer norms of their own"),
    ],
)
def test_what_has_no_meaning_is_refused(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_only_what_is_acted_on_moves_the_statistics_and_no_decay_moves_the_temperature():
    """Rates of 0: what still moves is not moved by a gradient. The decay of AdamW is in units of the rate, so none is left either."""
    still = {"update.optimization.learning_rate": 0.0, "update.optimization.critic_learning_rate": 0.0}
    run = recipes.load("simba", {"held_out": None, "store.learning_starts": 0, "store.minibatch": 16, **still})
    specs = run.update.models()
    assert specs["temperature"].optimizer.weight_decay == 0 and specs["critic"].optimizer.weight_decay == 1e-2
    trainer = Trainer(run)
    trainer.begin()
    for step in range(1, 4):
        trainer.advance()
        statistics = trainer.learner.policy.normalizer
        assert float(statistics.count) == 10 * step, "not the 16 rows of each of ten moves"
    trainer.close()
