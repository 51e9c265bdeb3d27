"""TD3 and DQN against sums taken here, their limiting cases, what their policies draw, and what is remembered of observations."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.transitions import AHEAD, FRESH, MOVE, split
from gimbal.engines.episodes import Episodes
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.dqn import DQN
from gimbal.learning.updates.off_policy import BACKED, Explore
from gimbal.learning.updates.td3 import SMOOTHING, TD3
from gimbal.learning.weight_sync.proof import DeliveryProof, NotDelivered
from gimbal.ops import TokenMean, philox
from gimbal.policies.control import Steps, StepSampling
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.greedy import Greedy
from gimbal.policies.normalizer import Normalizer
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import Rollout, Task, TrainBatch

K = 6
PLAIN = Optimization(learning_rate=0.01, critic_learning_rate=0.01, beta1=0.0, beta2=0.0, max_grad_norm=math.inf)
ACTOR = Deterministic(observations=3, actions=2, hidden=(8,), bound=1.5)
CRITIC = ActionValues(observations=3, actions=2, hidden=(8,), bound=1.5)
CHOICES = Greedy(observations=3, actions=4, hidden=(8,))


def batch_of(actions, move=None):
    g = torch.Generator().manual_seed(0)
    steps = Steps(
        observation_NSO=torch.randn(K, 1, 3, generator=g),
        action_NSA=actions(g),
        final_NO=torch.randn(K, 3, generator=g),
        length_N=torch.ones(K, dtype=torch.long),
        terminated_N=torch.arange(K) % 3 == 0,
    )
    facts = {} if move is None else {MOVE: torch.full((K,), move)}
    reward_NS = torch.randn(K, 1, generator=g)
    return TrainBatch(mask_NS=torch.ones(K, 1, dtype=torch.bool), reward_NS=reward_NS, decisions=steps, facts=facts)


def real(move=None):
    return batch_of(lambda g: torch.tanh(torch.randn(K, 1, 2, generator=g)), move)


def chosen(move=None):
    return batch_of(lambda g: torch.randint(4, (K, 1, 1), generator=g), move)


def td3(spec=ACTOR, **changes):
    return Learner(spec.load(1), TD3(critic=CRITIC, optimization=PLAIN, **changes), critic=CRITIC.load(2), seed=0)


def dqn(spec=CHOICES, **changes):
    return Learner(spec.load(1), DQN(optimization=PLAIN, **changes), seed=0)


def losses(learner, batch):
    batch, _ = learner.update.survey(learner.models, learner.prepare(batch))
    return batch, list(learner.update.losses(learner.models, batch))


def test_td3_is_its_equations():
    learner = td3(gamma=0.9, smoothing=0.7, reach=0.5)
    with torch.no_grad():  # targets that are not what they follow
        for name in ("target", "target_policy"):
            for weight in learner.models[name].parameters():
                weight.add_(0.1)
    batch, (of_critic, of_policy) = losses(learner, real(move=1))
    steps, models = batch.decisions, learner.models
    seen, after = steps.observation_NSO[:, 0], steps.final_NO
    noise = (0.7 * batch.facts[SMOOTHING][:, 0]).clamp(-0.5, 0.5)
    assert bool((noise.abs() == 0.5).any()), "some of it is cut"
    a = (1.5 * torch.tanh(models["target_policy"].mean(after)) + 1.5 * noise).clamp(-1.5, 1.5)
    y = batch.reward_NS[:, 0] + 0.9 * (~steps.terminated_N) * models["target"](after, a).min(-1).values
    q = models["critic"](seen, steps.action_NSA[:, 0])
    expected = (q - y.detach()[:, None]).square().sum(-1).mean()
    assert of_critic.of == ("critic",) and float(of_critic.value.detach()) == pytest.approx(
        float(expected.detach()), rel=1e-4
    )
    mode = 1.5 * torch.tanh(learner.policy.mean(seen))
    loss = -models["critic"](seen, mode)[:, 0].mean()
    weights = list(learner.policy.parameters())
    ours, own = (torch.autograd.grad(x, weights, retain_graph=True) for x in (of_policy.value, loss))
    torch.testing.assert_close(ours, own)


def test_td3_moves_its_policy_at_every_second_move():
    assert [len(losses(td3(), real(move))[1]) for move in range(4)] == [1, 2, 1, 2]
    assert [len(losses(td3(delay=1), real(move))[1]) for move in range(2)] == [2, 2]


def test_ddpg_is_without_smoothing_and_delay():
    """Then the target needs no noise at all."""
    learner = td3(smoothing=0.0, delay=1)
    batch = learner.prepare(real())
    louder = batch.with_columns({SMOOTHING: 100 * batch.facts[SMOOTHING]})
    surveyed = [learner.update.survey(learner.models, one)[0] for one in (batch, louder)]
    one, other = (next(learner.update.losses(learner.models, each)).value for each in surveyed)
    assert torch.equal(one, other)


@pytest.mark.parametrize("huber", [torch.inf, 1.0, 0.1])
@pytest.mark.parametrize("double", [True, False])
def test_dqn_is_its_equations(double, huber):
    learner = dqn(gamma=0.9, double=double, huber=huber)
    with torch.no_grad():
        for weight in learner.models["target"].parameters():
            weight.copy_(weight.flip(0))  # its best choices are others
    batch, (loss,) = losses(learner, chosen())
    steps, models = batch.decisions, learner.models
    after = models["target"].net(steps.final_NO)
    best = (models["policy"].net(steps.final_NO) if double else after).argmax(-1)
    y = (batch.reward_NS[:, 0] + 0.9 * (~steps.terminated_N) * after[torch.arange(K), best]).detach()
    apart = models["policy"].net(steps.observation_NSO[:, 0])[torch.arange(K), steps.action_NSA[:, 0, 0]] - y
    squares = apart.square() / 2
    expected = (squares if huber == torch.inf else nn.functional.huber_loss(apart, 0 * apart, delta=huber)).mean()
    assert float(loss.value.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
    chooses = models["policy"].net(steps.final_NO).argmax(-1)
    assert not torch.equal(chooses, after.argmax(-1)), "or the two forms would be one"


@pytest.mark.parametrize("chance", [0.0, 0.3, 1.0])
def test_with_chance_later_choices_are_worth_their_mean(chance):
    """And for a chance of 1 it is the same which network says what is best."""
    found = []
    for double in (True, False):
        learner = dqn(gamma=0.9, double=double, chance=chance)
        with torch.no_grad():
            for weight in learner.models["target"].parameters():
                weight.copy_(weight.flip(0))
        batch, (loss,) = losses(learner, chosen())
        steps, models = batch.decisions, learner.models
        after = models["target"].net(steps.final_NO)
        best = (models["policy"].net(steps.final_NO) if double else after).argmax(-1)
        worth = (1 - chance) * after[torch.arange(K), best] + chance * after.mean(-1)
        y = batch.reward_NS[:, 0] + 0.9 * (~steps.terminated_N) * worth
        q = models["policy"].net(steps.observation_NSO[:, 0])[torch.arange(K), steps.action_NSA[:, 0, 0]]
        expected = (q - y.detach()).square().mean() / 2
        assert float(loss.value.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)
        found.append(float(loss.value.detach()))
    assert (found[0] == found[1]) == (chance == 1.0)


def test_by_chance_a_choice_is_worth_the_share_of_ends_below_it_that_pay():
    """A tree of two words of three: five of nine ends pay; by the best value all words but the last would be worth 1."""
    pays = torch.tensor([[1.0, 1.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    first, last = torch.eye(4)[[3, 3, 3]], torch.eye(4)[:3].repeat_interleave(3, 0)  # nothing said yet; the first word
    steps = Steps(
        observation_NSO=torch.cat([first, last])[:, None],
        action_NSA=torch.cat([torch.arange(3), torch.arange(3).repeat(3)])[:, None, None],
        final_NO=torch.cat([torch.eye(4)[:3], torch.zeros(9, 4)]),
        length_N=torch.ones(12, dtype=torch.long),
        terminated_N=torch.arange(12) >= 3,
    )
    reward_NS = torch.cat([torch.zeros(3), pays.flatten()])[:, None]
    batch = TrainBatch(mask_NS=torch.ones(12, 1, dtype=torch.bool), reward_NS=reward_NS, decisions=steps)
    worth = {}
    for chance in (0.0, 1.0):
        spec = Greedy(observations=4, actions=3, hidden=(32,))
        update = DQN(gamma=1.0, tau=0.5, chance=chance, optimization=Optimization(learning_rate=0.02, beta2=0.999))
        learner = Learner(spec.load(1), update, seed=0)
        for _ in range(250):
            learner.step(learner.prepare(batch))
        worth[chance] = learner.policy.values(torch.eye(4)[3:])[0]
    torch.testing.assert_close(worth[1.0], pays.mean(1), atol=0.03, rtol=0)
    torch.testing.assert_close(worth[0.0], torch.ones(3), atol=0.03, rtol=0)


@pytest.mark.parametrize("n", [1, 3])
def test_what_is_prepared_once_for_all_moves_is_what_each_would_find(n):
    """Rewards ahead, discounts and weights, of moves that are not equally large."""
    learner = dqn(gamma=0.5)
    ahead = torch.randn(K, 1, n, generator=torch.Generator().manual_seed(1))
    ahead[2, 0, 1:] = torch.nan
    facts = {MOVE: torch.tensor([7, 7, 8, 8, 8, 9]), **({AHEAD: ahead} if n > 1 else {})}
    batch = chosen().with_columns(facts)
    prepared = learner.prepare(batch)
    moves = list(learner._minibatches(prepared, 0))
    assert [move.shape[0] for move in moves] == [2, 3, 1]
    for move, own in zip(moves, split(batch, [2, 3, 1]), strict=True):
        surveyed, _ = learner.update.survey(learner.models, move)
        assert torch.equal(surveyed.facts["weight"], TokenMean()(own.mask_NS))
        ours, theirs = learner.update.backed(move), learner.update.backed(own)
        assert BACKED in move.facts and BACKED not in own.facts
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_gamma_0_fits_rewards():
    for learner, batch in ((td3(gamma=0.0), real()), (dqn(gamma=0.0), chosen())):
        metrics = learner.step(learner.prepare(batch))
        assert metrics["q/target"] == pytest.approx(float(batch.reward_NS.mean()), rel=1e-5)


def test_exploration_falls_with_what_comes_in_and_goes_on_after_a_resume():
    learner = dqn(explore=Explore(first=1.0, last=0.1, over=4 * K))
    shares = [learner.step(learner.prepare(chosen(FRESH)))["explore"] for _ in range(3)]
    resumed = dqn(explore=Explore(first=1.0, last=0.1, over=4 * K))
    resumed.load_state(learner.save_state())
    shares += [resumed.step(resumed.prepare(chosen(FRESH)))["explore"] for _ in range(2)]
    assert shares == pytest.approx([0.775, 0.55, 0.325, 0.1, 0.1])
    assert float(resumed.policy.explore) == pytest.approx(0.1)


def test_observations_count_once_as_they_come_in_and_never_as_they_are_drawn():
    learner = dqn(replace(CHOICES, normalize=True))
    learner.step(learner.prepare(chosen(FRESH)))
    seen = chosen().decisions.observation_NSO[:, 0]
    torch.testing.assert_close(learner.policy.normalizer.mean_O, seen.mean(0))
    torch.testing.assert_close(learner.policy.normalizer.variance_O, seen.var(0, unbiased=False))
    before = learner.policy.normalizer.mean_O.clone()
    learner.step(learner.prepare(chosen(move=0)))
    assert torch.equal(learner.policy.normalizer.mean_O, before) and float(learner.policy.normalizer.count) == K
    assert torch.equal(learner.models["target"].normalizer.mean_O, before), "the target sees in the same units"


def test_moments_in_pieces_are_those_of_the_whole():
    x = 3 + 5 * torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
    normalizer = Normalizer(2)
    for piece in x.split([1, 9, 40, 50]):
        normalizer.observe(piece)
    torch.testing.assert_close(normalizer.mean_O, x.mean(0))
    torch.testing.assert_close(normalizer.variance_O, x.var(0, unbiased=False))
    torch.testing.assert_close(normalizer(x).std(0, unbiased=False), torch.ones(2))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("explore", [0.2, 1.0])
def test_a_clipped_action_has_a_density_inside_and_a_probability_on_the_bounds(temperature, explore):
    """Together they are 1, by numerical integration; and so many draws lie on the bounds."""
    policy = Deterministic(observations=1, actions=1, hidden=(4,), bound=1.5).load(3)
    policy.explore.fill_(explore)
    grid = torch.linspace(-1.5, 1.5, 30001)[1:-1, None]
    seen = torch.ones(len(grid), 1)
    inside = float(policy.assess(seen, grid, temperature)[0].detach().double().exp().sum() * (3 / 30000))
    low, high = policy.assess(seen[:2], torch.tensor([[-1.5], [1.5]]), temperature)[0].detach().exp().tolist()
    assert inside + low + high == pytest.approx(1, abs=2e-3)
    noise = policy.noise(philox("bounds"), 20_000)
    action, logprob = policy.draw(torch.ones(20_000, 1), noise, torch.full((20_000,), temperature))
    assert float((action == 1.5).float().mean()) == pytest.approx(high, abs=0.015)
    assert float((action == -1.5).float().mean()) == pytest.approx(low, abs=0.015)
    torch.testing.assert_close(policy.assess(torch.ones(20_000, 1), action, temperature)[0], logprob)


@pytest.mark.parametrize("bound", [0.1, 1.0, 7.0])
def test_a_squashed_and_scaled_action_has_a_density_that_integrates_to_1(bound):
    policy = SquashedGaussian(observations=1, actions=1, bound=bound, hidden=(4,)).load(0)
    grid = bound * torch.linspace(-1, 1, 40001)[1:-1, None]
    logprob = policy.assess(torch.zeros(len(grid), 1), grid, 1.0)[0].detach()
    assert float(logprob.double().exp().sum() * (2 * bound / 40000)) == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("spec", [CHOICES, replace(CHOICES, value_temperature=0.1)])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
def test_choices_are_drawn_as_often_as_is_said(spec, temperature):
    policy = spec.load(0)
    policy.explore.fill_(0.3)
    n = 20_000
    seen = torch.ones(n, 3)
    action, logprob = policy.draw(seen, policy.noise(philox("choices"), n), torch.full((n,), temperature))
    every = torch.arange(4)[:, None]
    said = policy.assess(torch.ones(4, 3), every, temperature)[0].exp()
    assert float(said.sum()) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(torch.bincount(action[:, 0], minlength=4) / n, said.detach(), atol=0.015, rtol=0)
    torch.testing.assert_close(policy.assess(seen, action, temperature)[0], logprob)
    entropy = policy.assess(torch.ones(4, 3), every, temperature)[1][0]
    assert float(entropy) == pytest.approx(-float((said * said.log()).sum()), rel=1e-4)
    cold = policy.draw(seen[:5], torch.zeros(5, 1), torch.zeros(5))
    assert torch.equal(cold[0][:, 0], policy.values(seen[:5]).argmax(-1)) and not cold[1].any()


def test_with_a_value_temperature_choices_go_by_their_values_and_near_0_it_is_the_best_one():
    seen = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    every, soft = torch.arange(4)[:, None], replace(CHOICES, value_temperature=0.3).load(0)
    for explore in (0.0, 0.25):
        soft.explore.fill_(explore)
        said = torch.stack([soft.assess(row.expand(4, 3), every, 1.0)[0].exp() for row in seen])
        expected = explore / 4 + (1 - explore) * (soft.values(seen) / 0.3).softmax(-1)
        torch.testing.assert_close(said, expected.detach())
    sharp, best = replace(CHOICES, value_temperature=1e-7).load(0), CHOICES.load(0)
    for policy in (sharp, best):
        policy.explore.fill_(0.2)
    one, other = (policy.assess(seen, policy.values(seen).argmax(-1, keepdim=True), 1.0) for policy in (sharp, best))
    torch.testing.assert_close(one[0], other[0])
    torch.testing.assert_close(one[1], other[1])
    assert torch.isfinite(one[1]).all(), "of a choice that is as good as certain"
    sharp.explore.fill_(0.0)
    assert torch.isfinite(sharp.assess(seen, every[:1].expand(6, 1), 1.0)[1]).all(), "of one that is certain"
    soft.explore.fill_(1.0)  # as before the first step
    drawn, _ = soft.draw(seen, torch.rand(6, 1, generator=torch.Generator().manual_seed(1)), torch.zeros(6))
    assert torch.equal(drawn, soft.values(seen).argmax(-1, keepdim=True)), "at temperature 0 the best one"
    with pytest.raises(ValueError, match="value_temperature is -1"):
        replace(CHOICES, value_temperature=-1.0)


@pytest.mark.parametrize(
    "spec",
    [ACTOR, CHOICES, replace(CHOICES, normalize=True, scale=30.0), replace(CHOICES, value_temperature=0.2)],
)
def test_a_saved_policy_comes_back_with_what_it_explores(spec, tmp_path):
    policy = spec.load(0)
    policy.explore.fill_(0.25)
    policy.save(tmp_path)
    again = spec.at(tmp_path).load(5)
    state = policy.state_dict()
    assert all(torch.equal(x, state[name]) for name, x in again.state_dict().items()) and float(again.explore) == 0.25
    if isinstance(spec, Greedy):
        assert again.scale == spec.scale and again.value_temperature == spec.value_temperature


def test_values_are_outputs_times_their_scale():
    seen = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    one, thirty = CHOICES.load(1), replace(CHOICES, scale=30.0).load(1)
    torch.testing.assert_close(thirty.values(seen), 30 * one.net(seen))
    assert torch.equal(one.values(seen), one.net(seen))
    with pytest.raises(ValueError, match="scale is 0"):
        replace(CHOICES, scale=0.0)


@pytest.mark.parametrize("wrong", [{"delay": 0}, {"smoothing": -1.0}])
def test_bad_numbers_are_refused(wrong):
    with pytest.raises(ValueError, match="TD3 has delay"):
        TD3(critic=CRITIC, **wrong)
    with pytest.raises(ValueError, match="Explore has first"):
        Explore(first=0.0)
    with pytest.raises(ValueError, match=r"DQN\.gamma is 2"):
        DQN(gamma=2.0)
    with pytest.raises(ValueError, match="huber 0"):
        DQN(huber=0.0)
    with pytest.raises(ValueError, match="chance 2"):
        DQN(chance=2.0)


def test_a_best_choice_that_stays_the_same_is_no_lost_delivery():
    """Weights have moved, their bits are held, and the canary is answered to the last bit as before: by the trainer too."""
    spec = replace(CHOICES, hidden=(8, 8, 8), normalize=True)  # tensors enough for the proof to expect another answer
    policy, engine = spec.load(1), Episodes(slots=1).start(spec.load(1))
    seen = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    steps = Steps(
        observation_NSO=seen[None, :4],
        action_NSA=policy.values(seen[:4]).argmax(-1)[None, :, None],
        final_NO=seen[4:],
        length_N=torch.tensor([4]),
        terminated_N=torch.tensor([False]),
    )
    said = Rollout(
        task=Task(id="t", source="s"),
        sample=0,
        decisions=steps,
        behavior_S=torch.zeros(4),
        version_S=torch.zeros(4, dtype=torch.long),
        mask_S=torch.ones(4, dtype=torch.bool),
        reward_S=torch.zeros(4),
        stop="truncated",
        sampling=StepSampling(max_length=4),
    )
    policy.explore.fill_(0.25)
    proof = DeliveryProof(policy, [said])
    for version in range(2):
        with torch.no_grad():
            for tensor in policy.state_dict().values():
                tensor.mul_(1 + 1e-6 * version)
        policy.explore.fill_(0.25)
        engine.load(version, policy.state_dict())
        assert proof(engine, version)["sync/gap"] == 0
    lazy = Episodes(slots=1).start(spec.load(2))  # and one that answers by other weights than it holds is still found
    lazy.load(1, policy.state_dict())
    proof.seen[""].said = (0, engine.witness(1, [said])[0].logprob_D)
    proof.trainer[0] = proof.trainer[0] - 1
    with pytest.raises(NotDelivered, match="are not used"):
        proof(lazy, 1)
