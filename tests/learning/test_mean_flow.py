"""CoFlow against sums taken here: the identity of mean velocities, agents that attend to each other, and the limiting cases."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_offline_control import gradient

from gimbal import recipes
from gimbal.environments.behaviors import line
from gimbal.environments.coop_line import CoopLine, uncovered
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.flow_q import START, TIME
from gimbal.learning.updates.mean_flow import SPAN, MeanFlow
from gimbal.policies.control import Steps
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.joint_flow import JointFlow
from gimbal.records import TrainBatch
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

SIZES = {"observations": 6, "actions": 3, "hidden": (8, 5), "bound": 1.5}
SPEC = JointFlow(**SIZES, agents=3)
PLAIN = Optimization(learning_rate=0.01, max_grad_norm=math.inf)
G = torch.Generator().manual_seed(4)
SEEN, NOISE = torch.randn(5, 6, generator=G), torch.randn(5, 3, generator=G)
TIMES, SPANS = torch.rand(5, 1, generator=G) / 2, torch.rand(5, 1, generator=G) / 2


def batch_of(rows=64):
    g = torch.Generator().manual_seed(0)
    steps = Steps(
        observation_NSO=torch.randn(rows, 1, 6, generator=g),
        action_NSA=1.5 * torch.randn(rows, 1, 3, generator=g).tanh(),
        final_NO=torch.randn(rows, 6, generator=g),
        length_N=torch.ones(rows, dtype=torch.long),
        terminated_N=torch.ones(rows, dtype=torch.bool),
    )
    return TrainBatch(mask_NS=torch.ones(rows, 1, dtype=torch.bool), decisions=steps)


def learned(spec=SPEC, gate=0.7, **changes):
    """Its agents are coupled from the start."""
    return Learner(opened(spec.load(1), gate), MeanFlow(optimization=PLAIN, **changes), seed=0)


def opened(policy, gate=0.7):
    with torch.no_grad():
        for name, weight in policy.named_parameters():
            if name.endswith("gate"):
                weight.fill_(gate)
    return policy


def asked(learner, batch):
    models, update = learner.models, learner.update
    batch = update.survey(models, update.prepare(models, batch)[0])[0]
    return batch, next(iter(update.losses(models, batch)))


def by_hand(flow, o, x, t, d):
    """u, one agent and one pair of agents at a time."""
    rows = []
    for k in range(len(x)):
        h = [torch.cat([o[k, 2 * i : 2 * i + 2], x[k, i : i + 1], t[k], d[k]]) for i in range(3)]
        for number, layer in enumerate(flow.layers):
            h = [layer[0](each).relu() for each in h]
            if not flow.between:
                continue
            own = flow.between[number]
            width = len(h[0])
            q, key, value = zip(*(own.mix[0](each).split(width) for each in h), strict=True)
            share = [torch.stack([q[i] @ key[j] / math.sqrt(width) for j in range(3)]).softmax(0) for i in range(3)]
            h = [h[i] + own.gate.tanh() * sum(share[i][j] * value[j] for j in range(3)) for i in range(3)]
        rows.append(torch.cat([flow.last[0](each) for each in h]))
    return torch.stack(rows)


def test_a_joint_velocity_is_its_equations():
    policy = opened(SPEC.load(1))
    found = policy.flow(SEEN, NOISE, TIMES, SPANS)
    torch.testing.assert_close(found, by_hand(policy.flow, SEEN, NOISE, TIMES, SPANS))


def test_mean_flow_is_its_equations():
    learner = learned(straight=0.4, delta=0.05)
    batch, found = asked(learner, batch_of())
    flow, facts = learner.policy.flow, {name: x[:, 0] for name, x in batch.facts.items()}
    o, a = batch.decisions.observation_NSO[:, 0], batch.decisions.action_NSA[:, 0] / 1.5
    first, second, coin = facts[TIME][:, 0], facts[SPAN][:, 0], facts[SPAN][:, 1]
    errors, kinds = [], set()
    for k in range(len(a)):
        far = bool(coin[k] >= 0.4)
        t, s = (float(first[k]), float(first[k])) if not far else sorted((float(first[k]), float(second[k])))
        v = a[k] - facts[START][k]
        x, h, d = facts[START][k] + t * v, min(0.05, s - t), s - t

        def u(x, t, d, k=k):
            return by_hand(flow, o[k : k + 1], x[None], torch.tensor([[t]]), torch.tensor([[d]]))[0]

        wanted = v
        if far:
            wanted = v + d / h * (u(x + h * v, t + h, d - h) - u(x, t, d))
        kinds.add((far, h < 0.05))
        errors.append((u(x, t, d) - wanted.detach()).square().mean())
    assert len(kinds) == 3, "straight ones, short ones and long ones"
    expected = torch.stack(errors).mean()
    torch.testing.assert_close(found.value, expected, rtol=1e-4, atol=1e-5)
    for own, theirs in zip(gradient(found.value, learner.policy), gradient(expected, learner.policy), strict=True):
        torch.testing.assert_close(own, theirs, rtol=1e-3, atol=1e-5)


def test_a_small_delta_asks_for_the_identity_with_the_exact_derivative():
    policy = opened(SPEC.load(1)).double()
    o, x, t, d = (each.double() for each in (SEEN, NOISE, TIMES, SPANS))
    v = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)).double()
    ones = torch.ones_like(t)
    _, derivative = torch.func.jvp(lambda x, t, d: policy.flow(o, x, t, d), (x, t, d), (v, ones, -ones))
    found = MeanFlow(optimization=PLAIN, delta=1e-6).wanted(policy.flow, o, x, v, t, d)
    torch.testing.assert_close(found, v + d * derivative, rtol=1e-4, atol=1e-5)


def test_no_span_asks_for_the_way_itself():
    found = MeanFlow(optimization=PLAIN).wanted(SPEC.load(1).flow, SEEN, NOISE, 2 * NOISE, TIMES, 0 * SPANS)
    assert torch.equal(found, 2 * NOISE)


def test_mean_velocities_of_a_straight_flow_are_what_is_asked_for():
    """u = v everywhere, where all ways to one point are straight: nothing is left to learn."""

    def to_one_point(o, x, t, d):
        return (0.3 - x) / (1 - t)

    x = (1 - TIMES) * NOISE + TIMES * 0.3
    found = MeanFlow(optimization=PLAIN, delta=0.02).wanted(to_one_point, SEEN, x, 0.3 - NOISE, TIMES, SPANS)
    torch.testing.assert_close(found, to_one_point(SEEN, x, TIMES, SPANS), rtol=1e-3, atol=1e-4)


def test_an_ordinary_flow_is_matched_at_all_steps():
    learner = learned(replace(SPEC, averaged=False))
    batch, found = asked(learner, batch_of())
    start, t = batch.facts[START][:, 0], batch.facts[TIME][:, 0]
    way = batch.decisions.action_NSA[:, 0] / 1.5 - start
    told = learner.policy.flow(batch.decisions.observation_NSO[:, 0], start + t * way, t, 0 * t)
    torch.testing.assert_close(found.value, (told - way).square().mean())


def test_agents_that_are_not_coupled_are_independent():
    for policy in (opened(SPEC.load(1), 0.0), replace(SPEC, coupled=False).load(1)):
        moved = NOISE.clone()
        moved[:, 2] += 1
        one, other = (policy.end(SEEN, noise, 3) for noise in (NOISE, moved))
        assert torch.equal(one[:, :2], other[:, :2]) and not torch.equal(one[:, 2], other[:, 2])
    policy = opened(SPEC.load(1))
    assert not torch.equal(*(policy.end(SEEN, noise, 3)[:, 0] for noise in (NOISE, moved)))


def test_agents_that_begin_closed_open_by_the_gradient():
    learner = learned(gate=0.0)
    learner.step(learner.prepare(batch_of()))
    assert learner.policy.flow.coupling() > 0


def test_agents_in_another_order_do_the_same_in_that_order():
    policy, order = opened(SPEC.load(1)), torch.tensor([2, 0, 1])
    seen = SEEN.reshape(5, 3, 2)[:, order].reshape(5, 6)
    torch.testing.assert_close(policy.end(seen, NOISE[:, order], 2), policy.end(SEEN, NOISE, 2)[:, order])


def test_steps_follow_mean_velocities_and_of_an_ordinary_flow_velocities():
    for averaged in (True, False):
        policy, x = opened(replace(SPEC, averaged=averaged).load(1)), NOISE
        for number in range(4):
            t = torch.full((5, 1), number / 4)
            x = x + by_hand(policy.flow, SEEN, x, t, torch.full((5, 1), averaged / 4)) / 4
        torch.testing.assert_close(policy.end(SEEN, NOISE, 4), x.clamp(-1, 1))


def test_an_agent_alone_plays_its_part_of_what_it_draws_for_all():
    policy = opened(replace(SPEC, alone=True, flow_steps=2).load(1))
    noise = policy.noise(np.random.default_rng(0), 5)
    found = policy.draw(SEEN, noise, torch.ones(5))[0]
    parts = [policy.end(SEEN, noise[:, 3 * i : 3 * i + 3], 2)[:, i] for i in range(3)]
    torch.testing.assert_close(found, 1.5 * torch.stack(parts, -1))
    together = opened(replace(SPEC, flow_steps=2).load(1))
    same = noise[:, :3].repeat(1, 3)
    torch.testing.assert_close(
        policy.draw(SEEN, same, torch.ones(5))[0], together.draw(SEEN, noise[:, :3], torch.ones(5))[0]
    )


def test_bad_settings_of_joint_flows_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"JointFlow\.agents is 0; it is at least 1"):
        replace(SPEC, agents=0)
    with pytest.raises(ValueError, match=r"JointFlow\.flow_steps is 0; it is at least 1"):
        replace(SPEC, flow_steps=0)
    for settings in ({"straight": 1.0}, {"straight": -0.1}, {"delta": 0.0}, {"delta": math.nan}):
        with pytest.raises(ValueError, match=r"MeanFlow has straight .* set policy\.averaged=false"):
            MeanFlow(**settings)
    Gaussian(observations=6, actions=3).load(0).save(tmp_path / "other")
    with pytest.raises(ValueError, match="holds no JointFlow policy, for its configuration says nothing of agents"):
        replace(SPEC, model=str(tmp_path / "other")).load(0)
    SPEC.load(0).save(tmp_path / "own")
    with pytest.raises(ValueError, match=r"saved with averaged True, and policy\.averaged is False: set the same"):
        replace(SPEC, averaged=False, model=str(tmp_path / "own")).load(0)


def test_a_saved_joint_flow_draws_the_same(tmp_path):
    policy = opened(SPEC.load(1))
    policy.save(tmp_path)
    again = replace(SPEC, model=str(tmp_path)).load(0)
    assert torch.equal(again.draw(SEEN, NOISE, torch.ones(5))[0], policy.draw(SEEN, NOISE, torch.ones(5))[0])


def test_a_run_of_coflow_goes_on_to_the_same_bits(tmp_path, single_thread):
    small = {"store.moves": "3", "store.minibatch": "16", "held_out.tasks.size": "4"}
    run = recipes.load("coflow", small)
    trainer = Trainer(run)
    trainer.advance(), trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path / "saved", {}))
    for _ in range(2):
        found = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(found)
    assert math.isfinite(found["loss"]) and found["flow/coupling"] > 0 and found["flow/few"] > 0
    assert trainer.evaluate().metrics()["eval/score"] < 0
    trainer.close(), resumed.close()


def test_agents_part_on_a_line():
    world = CoopLine()
    seen, _ = world.reset(seed=3)
    assert (seen == seen[0]).all() and abs(seen[0]) <= 0.3
    middle = float(seen[0])
    _, reward, terminated, truncated, info = world.step(middle + np.array([0.6, -0.5, 0.0]))
    assert (terminated, truncated, info["is_success"]) == (True, False, True) and reward == pytest.approx(-0.1 / 3)
    world.reset(seed=3)
    _, reward, *_, info = world.step(np.full(3, middle))
    assert not info["is_success"] and reward == pytest.approx(-0.4), "the middle covers one place of three"
    assert world.reset(seed=3)[0][0] == np.float32(middle)


def test_recorded_agents_part_in_all_ways():
    found, ways = line(200), set()
    for one in found.episodes:
        assert one.terminated and one.reward_S[0] > -0.15
        assert one.reward_S[0] == pytest.approx(-uncovered(one.action_SA[0], float(one.observation_SO[0, 0])).mean())
        ways.add(tuple(np.argsort(one.action_SA[0]).tolist()))
        assert CoopLine().reset(seed=one.seed)[0] == pytest.approx(one.observation_SO[0])
    assert len(ways) == 6
