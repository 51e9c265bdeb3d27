"""Control policies against torch.distributions, their records, their files, and the critic."""

import math
from dataclasses import replace

import pytest
import torch

from gimbal.critics.mlp import ValueMLP
from gimbal.ops import philox
from gimbal.policies.categorical import Categorical
from gimbal.policies.control import Steps
from gimbal.policies.gaussian import Gaussian

GAUSSIAN, CATEGORICAL = Gaussian(observations=3, actions=2, log_std=0.3), Categorical(observations=3, actions=4)
BOTH = pytest.mark.parametrize("spec", [GAUSSIAN, CATEGORICAL], ids=["gaussian", "categorical"])


def loud(spec, seed=0):
    """A policy whose distributions differ from one observation to the next."""
    policy = spec.load(seed)
    head = policy.mean if isinstance(spec, Gaussian) else policy.logits
    with torch.no_grad():
        head[-1].weight.mul_(100)
    return policy


def steps(policy, lengths=(3, 5), seed=0):
    """Rows of these lengths, as the policy draws them."""
    rows = []
    for i, length in enumerate(lengths):
        generator = torch.Generator().manual_seed(seed + i)
        seen_SO = torch.randn(length + 1, 3, generator=generator)
        noise_SA = policy.noise(philox("noise", seed, i), length)
        action_SA, _ = policy.draw(seen_SO[:-1], noise_SA, torch.ones(length))
        rows.append(
            Steps(
                observation_NSO=seen_SO[None, :-1],
                action_NSA=action_SA[None].detach(),
                final_NO=seen_SO[None, -1],
                length_N=torch.tensor([length]),
                terminated_N=torch.tensor([i % 2 == 1]),
            )
        )
    return Steps.stack(rows)


def test_gaussian_is_the_textbook_gaussian():
    policy = loud(GAUSSIAN)
    decisions = steps(policy)
    evaluation = policy.evaluate(decisions, columns=["entropy_NS"])
    normal = torch.distributions.Normal(policy.mean(decisions.observation_NSO), policy.log_std_A.exp())
    expected_NS = normal.log_prob(decisions.action_NSA).sum(-1)
    torch.testing.assert_close(evaluation.logprob_NS, torch.where(decisions.real_NS, expected_NS, 0))
    torch.testing.assert_close(
        evaluation.columns["entropy_NS"], torch.where(decisions.real_NS, normal.entropy().sum(-1), 0)
    )


def test_categorical_is_the_textbook_categorical():
    policy = loud(CATEGORICAL)
    decisions = steps(policy)
    evaluation = policy.evaluate(decisions, columns=["entropy_NS"])
    table = torch.distributions.Categorical(logits=policy.logits(decisions.observation_NSO))
    expected_NS = table.log_prob(decisions.action_NSA[..., 0])
    torch.testing.assert_close(evaluation.logprob_NS, torch.where(decisions.real_NS, expected_NS, 0))
    torch.testing.assert_close(evaluation.columns["entropy_NS"], torch.where(decisions.real_NS, table.entropy(), 0))


@BOTH
def test_temperature_raises_the_density_to_its_inverse(spec):
    """Differences of log-probabilities at one observation shrink by T."""
    policy = loud(spec)
    one = steps(policy, lengths=(6,))
    same = replace(one, observation_NSO=one.observation_NSO[:, :1].expand(-1, 6, -1))
    cold_S, hot_S = (policy.evaluate(same, temperature=t).logprob_NS[0] for t in (1.0, 2.5))
    assert (cold_S[1:] - cold_S[0]).abs().max() > 0.1
    torch.testing.assert_close((hot_S[1:] - hot_S[0]) * 2.5, cold_S[1:] - cold_S[0], atol=1e-5, rtol=1e-4)


@BOTH
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draw_reports_what_evaluate_finds(spec, temperature):
    policy = loud(spec)
    generator = torch.Generator().manual_seed(1)
    seen_SO = torch.randn(50, 3, generator=generator)
    action_SA, behavior_S = policy.draw(seen_SO, policy.noise(philox("n"), 50), torch.full((50,), temperature))
    found_S, _ = policy.assess(seen_SO, action_SA, temperature)
    torch.testing.assert_close(behavior_S, found_S)


@BOTH
def test_temperature_zero_is_the_mode_whatever_the_noise(spec):
    policy = loud(spec)
    seen_SO = torch.randn(20, 3, generator=torch.Generator().manual_seed(2))
    action_SA, behavior_S = policy.draw(seen_SO, policy.noise(philox("n"), 20), torch.zeros(20))
    mode_SA = policy.mean(seen_SO) if spec is GAUSSIAN else policy.logits(seen_SO).argmax(-1, keepdim=True)
    assert torch.equal(action_SA, mode_SA) and not behavior_S.any()


def test_temperatures_mix_in_one_batch():
    policy = loud(CATEGORICAL)
    seen_BO, noise_BA = torch.randn(6, 3, generator=torch.Generator().manual_seed(3)), torch.full((6, 1), 0.9)
    temperature_B = torch.tensor([0.0, 1.0, 0.0, 2.0, 1.0, 0.5])
    together_BA, _ = policy.draw(seen_BO, noise_BA, temperature_B)
    apart = [policy.draw(seen_BO[i : i + 1], noise_BA[:1], temperature_B[i : i + 1])[0] for i in range(6)]
    assert torch.equal(together_BA, torch.cat(apart))


def test_categorical_frequencies():
    """Chi-square over 4 choices, 20,000 draws: the 99.9 % point of 3 degrees of freedom is 16.3."""
    policy, draws = loud(CATEGORICAL), 20_000
    seen_BO = torch.tensor([[0.3, -1.0, 0.5]]).expand(draws, -1)
    action_BA, _ = policy.draw(seen_BO, policy.noise(philox("frequencies"), draws), torch.ones(draws))
    expected_V = policy.logits(seen_BO[0]).softmax(-1).detach() * draws
    counted_V = torch.bincount(action_BA[:, 0], minlength=4)
    assert float(((counted_V - expected_V) ** 2 / expected_V).sum()) < 16.3


def test_categorical_noise_at_the_ends_gives_a_choice():
    policy = loud(CATEGORICAL)
    last_below_one = 1 - 2.0**-24
    action_BA, behavior_B = policy.draw(torch.zeros(2, 3), torch.tensor([[0.0], [last_below_one]]), torch.ones(2))
    assert action_BA[:, 0].tolist() == [0, 3] and bool(torch.isfinite(behavior_B).all())


def test_gaussian_moments():
    policy, draws = loud(GAUSSIAN), 50_000
    seen_BO = torch.tensor([[0.3, -1.0, 0.5]]).expand(draws, -1)
    action_BA, _ = policy.draw(seen_BO, policy.noise(philox("moments"), draws), torch.full((draws,), 4.0))
    mean_A, std = policy.mean(seen_BO[0]), 2 * math.exp(0.3)  # T = 4 doubles the standard deviation
    torch.testing.assert_close(action_BA.mean(0), mean_A, atol=4 * std / math.sqrt(draws), rtol=0)
    torch.testing.assert_close(action_BA.std(0), torch.full((2,), std), rtol=0.02, atol=0)


def test_gradient_of_log_std():
    """d log N / d log_std = z^2 - 1."""
    policy = loud(GAUSSIAN)
    decisions = steps(policy, lengths=(1,))
    policy.evaluate(decisions).logprob_NS.sum().backward()
    z_A = ((decisions.action_NSA - policy.mean(decisions.observation_NSO)) / policy.log_std_A.exp())[0, 0]
    torch.testing.assert_close(policy.log_std_A.grad, z_A.square() - 1)


@BOTH
def test_padding_has_no_gradient(spec):
    """What lies in padding moves neither the values nor the gradients."""
    policy = loud(spec)
    decisions = steps(policy)
    seen_NSO = decisions.observation_NSO.clone()
    seen_NSO[0, 3:] = float("nan")
    grads = []
    for candidate in (decisions, replace(decisions, observation_NSO=seen_NSO)):
        policy.zero_grad()
        policy.evaluate(candidate, columns=["entropy_NS"]).logprob_NS.sum().backward()
        grads.append([p.grad.clone() for p in policy.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@BOTH
def test_rows_of_one_length_are_the_same_beside_a_longer_one(spec):
    """Without padding decisions are a view of all places; with it, an index by a mask."""
    policy, critic = loud(spec), ValueMLP(observations=3).load(0)
    uneven = steps(policy, lengths=(4, 4, 6))
    even = uneven.select(torch.tensor([0, 1]))
    assert even.shape == (2, 4)

    def found(decisions):
        evaluation = policy.evaluate(decisions, columns=["entropy_NS"])
        value_NS = critic.value(decisions)[0]
        kept = [x_NS[:2, :4] for x_NS in (evaluation.logprob_NS, evaluation.columns["entropy_NS"], value_NS)]
        weights = [*policy.parameters(), *critic.parameters()]
        return kept, torch.autograd.grad(sum(x.square().sum() for x in kept), weights)

    for mine, its in zip(found(even), found(uneven), strict=True):
        torch.testing.assert_close(list(mine), list(its))


@BOTH
def test_first_weights_hang_on_the_seed_alone(spec):
    torch.manual_seed(5)
    one = spec.load(1).state_dict()
    torch.manual_seed(6)
    same, other = spec.load(1).state_dict(), spec.load(2).state_dict()
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert any(not torch.equal(one[name], other[name]) for name in one)


@BOTH
def test_saved_policy_comes_back(spec, tmp_path):
    policy = loud(spec)
    decisions = steps(policy)
    policy.save(tmp_path)
    again = spec.at(tmp_path).load(seed=9)
    assert torch.equal(again.evaluate(decisions).logprob_NS, policy.evaluate(decisions).logprob_NS)


@BOTH
def test_directories_that_do_not_load(spec, tmp_path):
    with pytest.raises(ValueError, match=r"config\.json"):
        spec.at(tmp_path).load()
    spec.load().save(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"cut short")
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        spec.at(tmp_path).load()


def test_a_directory_of_another_family_is_refused(tmp_path):
    CATEGORICAL.load().save(tmp_path)
    with pytest.raises(ValueError, match="GaussianPolicy"):
        GAUSSIAN.at(tmp_path).load()


def test_steps_select_undoes_stack():
    decisions = steps(loud(GAUSSIAN))
    assert decisions.shape == (2, 5) and decisions.cost_N.tolist() == [3, 5]
    first = decisions.select(torch.tensor([0]))
    assert first.shape == (1, 3) and not bool(first.terminated_N[0])
    back = Steps.stack([first, decisions.select(torch.tensor([1]))])
    for name in ("observation_NSO", "action_NSA", "final_NO", "length_N", "terminated_N"):
        assert torch.equal(getattr(back, name), getattr(decisions, name)), name


def test_a_critic_of_another_size_says_which_is_right():
    with pytest.raises(
        ValueError, match=r"reads 4 numbers, but the environment.s observation has 3: set critic\.observations=3"
    ):
        ValueMLP(observations=4).load(0).value(steps(loud(GAUSSIAN)))


def test_a_critic_of_several_horizons_has_a_value_for_each_and_uses_the_last():
    decisions = steps(loud(GAUSSIAN))
    critic = ValueMLP(observations=3, scale=5.0, heads=3).load(0)
    value_NSM, final_NM = critic.members(decisions)
    value_NS, final_N = critic.value(decisions)
    assert torch.equal(value_NSM[..., -1], value_NS) and torch.equal(final_NM[:, -1], final_N)
    assert torch.equal(critic.present(decisions), value_NSM), "what a loss reads"
    torch.testing.assert_close(value_NSM[1, 2], 5.0 * critic.net(decisions.observation_NSO[1, 2]))
    assert not final_NM[1].any() and bool(final_NM[0].all()), "the second episode ended"
    assert not value_NSM[0, 3:].any() and value_NSM[0, 0].unique().numel() == 3


def test_one_head_is_the_critic_of_one_value():
    decisions = steps(loud(GAUSSIAN))
    (value_NSM, _), (value_NS, _) = (
        ask(decisions) for critic in [ValueMLP(observations=3).load(0)] for ask in (critic.members, critic.value)
    )
    assert value_NSM.shape[-1] == 1 and torch.equal(value_NSM[..., 0], value_NS)
    for wrong in ({"heads": 0}, {"scale": 0.0}):
        with pytest.raises(ValueError, match=r"heads .* \(at least 1\) and scale .* \(above 0 and finite\)"):
            ValueMLP(observations=3, **wrong)


def test_critic_expects_nothing_after_the_end():
    critic = ValueMLP(observations=3, scale=5.0).load(0)
    decisions = steps(loud(GAUSSIAN))
    value_NS, final_N = critic.value(decisions)
    expected_N = 5.0 * critic.net(decisions.final_NO)[:, 0]
    torch.testing.assert_close(final_N, torch.stack([expected_N[0], torch.zeros(())]))
    torch.testing.assert_close(value_NS[1, 2], 5.0 * critic.net(decisions.observation_NSO[1, 2])[0])
    assert not value_NS[0, 3:].any() and bool(value_NS[0, :3].all())
