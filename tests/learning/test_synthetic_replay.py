"""SynthER against sums taken here, its limiting cases, and that what a flow draws obeys the rule of its data."""

import copy
import math
from dataclasses import replace

import pytest
import torch
from test_learned_worlds import INSIDE, POLICY, drawn

from gimbal import recipes
from gimbal.dataflow.replay.transitions import FRESH
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.dqn import DQN
from gimbal.learning.updates.feasibility import FeasibilityGuided
from gimbal.learning.updates.flow_q import START, TIME
from gimbal.learning.updates.off_policy import steps_of
from gimbal.learning.updates.synthetic_replay import (
    DRAWN,
    TRANSITIONS,
    SyntheticReplay,
    TransitionFlow,
    transitions,
)
from gimbal.learning.updates.td3 import TD3, Imitation
from gimbal.policies.deterministic import Deterministic
from gimbal.runtime import compose
from gimbal.runtime.local import Trainer

SMALL = SyntheticReplay(inside=INSIDE, warmup=0, hidden=(8,), flow_steps=3)
BOUND = INSIDE.critic.bound


def learner_of(update=SMALL, policy=POLICY, shown=None):
    made = Learner(policy.load(1), update, seed=0)
    made.prepare(drawn(20, FRESH, seed=5) if shown is None else shown)
    return made


def ready(made, batch):
    batch = made.prepare(batch)
    return batch, made.update.survey(made.models, batch)[0]


def moved(update, policy=POLICY, batches=3):
    made = learner_of(update, policy)
    for number in range(batches):
        made.step(made.prepare(drawn(move=number, seed=number)))
    return {
        name: torch.cat([x.detach().flatten() for x in made.models[name].parameters()]) for name in made.models.modules
    }


def test_the_flow_learns_the_way_to_what_was_recorded():
    made, batch = learner_of(), drawn()
    _, surveyed = ready(made, batch)
    flow, facts = made.models[TRANSITIONS], surveyed.facts
    shown = transitions(drawn(20, FRESH, seed=5))
    # Of the steps as they came, not of those that stand in their place.
    x = (transitions(batch) - shown.mean(0)) / (shown.var(0, unbiased=False) + 1e-8).sqrt()
    start, time = (facts[f"{TRANSITIONS}/{name}"][:, 0] for name in (START, TIME))
    at = (1 - time) * start + time * x.clamp(-10, 10)
    expected = (flow.flow.net(torch.cat([at, time], -1)) - (x.clamp(-10, 10) - start)).square().mean()
    found = next(made.update.losses(made.models, surveyed))
    assert found.of == (TRANSITIONS,)
    torch.testing.assert_close(found.value, expected)


def test_half_of_the_steps_are_where_the_flow_leads_from_noise():
    made, batch = learner_of(), drawn()
    prepared, surveyed = ready(made, batch)
    flow, steps = made.models[TRANSITIONS], steps_of(surveyed)
    with torch.no_grad():
        x = prepared.facts[DRAWN][:, 0]
        for number in range(3):
            x = x + flow.flow.net(torch.cat([x, torch.full((8, 1), number / 3)], -1)) / 3
        x = flow.units.mean_O + x * (flow.units.variance_O + 1e-8).sqrt()
    taken = torch.arange(8) % 2 == 1  # spread over the minibatch
    for name, mine, real in (
        ("o", steps.observation_NSO[:, 0], x[:, :3]),
        ("a", steps.action_NSA[:, 0], x[:, 3:5].clamp(-BOUND, BOUND)),
        ("r", surveyed.reward_NS, x[:, 5:6]),
        ("o'", steps.final_NO, x[:, :3] + x[:, 6:9]),
        ("ended", steps.terminated_N, x[:, 9] > 0.5),
    ):
        torch.testing.assert_close(mine[taken], real[taken], msg=name)
    kept = surveyed.select((~taken).nonzero()[:, 0])
    assert torch.equal(transitions(kept), transitions(batch)[~taken])
    # What is learned from a step is of the step that stands there.
    reward_K, discount_K = made.update.inside.backed(surveyed)
    torch.testing.assert_close(reward_K, surveyed.reward_NS[:, 0])
    torch.testing.assert_close(discount_K, 0.9 * (~steps.terminated_N).float())


def test_share_0_is_the_update_inside_bit_for_bit():
    ours, plain = moved(replace(SMALL, share=0.0)), moved(INSIDE)
    assert all(torch.equal(ours[name], weights) for name, weights in plain.items())
    assert not torch.equal(moved(SMALL)["policy"], plain["policy"])


def test_share_1_never_sees_a_real_step():
    made, batch = learner_of(replace(SMALL, share=1.0)), drawn()
    _, surveyed = ready(made, batch)
    assert not (transitions(surveyed) == transitions(batch)).all(-1).any()


def test_the_first_moves_are_the_flows_alone():
    made = learner_of(replace(SMALL, warmup=2))
    before = {
        name: torch.cat([x.detach().flatten() for x in made.models[name].parameters()]) for name in made.models.modules
    }
    after = moved(replace(SMALL, warmup=2), batches=2)
    assert [name for name in after if not torch.equal(after[name], before[name])] == [TRANSITIONS]
    assert not torch.equal(moved(replace(SMALL, warmup=2))["critic"], before["critic"])


def test_a_drawn_step_has_no_recorded_action_to_imitate():
    """TD3+BC imitates the action that was drawn: the scale of its value is of the steps that stand there too."""
    policy = Deterministic(observations=3, actions=2, hidden=(8,), bound=BOUND)
    inside = TD3(critic=INSIDE.critic, delay=1, imitation=Imitation(alpha=0.0), optimization=INSIDE.optimization)
    made = learner_of(replace(SMALL, inside=inside, share=1.0), policy)
    _, surveyed = ready(made, drawn())
    loss = list(made.update.losses(made.models, surveyed))[-1]
    steps = steps_of(surveyed)
    apart = (policy.load(1).mode(steps.observation_NSO[:, 0]) - steps.action_NSA[:, 0]) / BOUND
    torch.testing.assert_close(loss.value, apart.square().mean())


def test_what_is_drawn_obeys_the_rule_of_the_data():
    """o' = o + a in the first two dimensions, r = 2 a, and an episode ends where o is above 1."""
    g = torch.Generator().manual_seed(0)

    def batch(move, count=256):
        real = drawn(count, move)
        seen, action = torch.randn(count, 3, generator=g), torch.randn(count, 2, generator=g).clamp(-BOUND, BOUND)
        after = seen.clone()
        after[:, :2] += action
        steps = replace(
            real.decisions,
            observation_NSO=seen[:, None],
            action_NSA=action[:, None],
            final_NO=after,
            terminated_N=seen[:, 2] > 1,
        )
        return replace(real, decisions=steps, reward_NS=2 * action[:, :1])

    inside = replace(INSIDE, optimization=Optimization())
    update = replace(SMALL, inside=inside, warmup=10**6, hidden=(64, 64), flow_steps=10, flow_learning_rate=3e-3)
    made = learner_of(update, shown=batch(FRESH, 2000))
    for number in range(500):
        made.step(made.prepare(batch(number)))
    flow = made.models[TRANSITIONS]
    with torch.no_grad():
        seen, action, reward, after, ended = flow.parts(flow.follow(torch.randn(1000, 10, generator=g), 10), BOUND)
    assert float((after[:, :2] - seen[:, :2] - action).square().mean()) < 0.05, "of 1 in the data"
    assert float((reward[:, 0] - 2 * action[:, 0]).square().mean()) < 0.2, "of 3"
    assert 0.8 < float(seen.var()) < 1.2 and 0.1 < float(ended.float().mean()) < 0.22, "of .16"
    assert float(seen[ended, 2].mean()) > 1.0 > float(seen[~ended, 2].mean())


FIXED = Deterministic(observations=3, actions=2, hidden=(8,), bound=BOUND)
IMITATES = TD3(critic=INSIDE.critic, delay=1, imitation=Imitation(), optimization=INSIDE.optimization)


def test_guidance_is_its_equation_and_0_is_the_flows_own_draws():
    found = {}
    for guidance in (0.0, 2.0):
        made = learner_of(replace(SMALL, inside=IMITATES, share=1.0, guidance=guidance), FIXED)
        prepared, surveyed = ready(made, drawn())
        found[guidance] = transitions(surveyed)
        flow, policy, start = made.models[TRANSITIONS], made.policy, prepared.facts[DRAWN][:, 0]
        mean, std = flow.units.mean_O, (flow.units.variance_O + 1e-8).sqrt()

        def end(x, t, flow=flow):
            return x + (1 - t) * flow.flow.net(torch.cat([x, torch.full((8, 1), t)], -1))

        x = start
        for number in range(3):
            t = number / 3
            to = end(x, t).detach().requires_grad_()
            raw = mean + std * to
            density = -((raw[:, 3:5] - policy.mode(raw[:, :3].detach())) / BOUND).square().sum() / 2
            (pull,) = torch.autograd.grad(density, to)
            x = (x + ((end(x, t) - x) / (1 - t) + guidance * (1 - t) / ((1 - t) ** 2 + t**2) * pull) / 3).detach()
        torch.testing.assert_close(found[guidance][:, 3:5], (mean + std * x)[:, 3:5].clamp(-BOUND, BOUND))
    plain = learner_of(replace(SMALL, inside=IMITATES, share=1.0), FIXED)
    assert torch.equal(found[0.0], transitions(ready(plain, drawn())[1]))
    assert torch.equal(plain.models[TRANSITIONS].follow(start, 3), flow.follow(start, 3))


def test_guided_draws_are_nearer_to_the_policy_the_more_they_are_pulled():
    """Of actions N(0, 1) in the data and N(m, b^2) in the policy, draws are near the product: between the two means."""
    apart = []
    for guidance in (0.0, 0.5, 1.0, 2.0):
        made = learner_of(replace(SMALL, inside=IMITATES, share=1.0, guidance=guidance), FIXED)
        apart.append(made.update.survey(made.models, made.prepare(drawn()))[1]["synthetic/off_policy"])
    assert apart == sorted(apart, reverse=True) and apart[-1] < 0.5 * apart[0], apart


def test_a_guide_of_a_unit_gaussian_leads_to_the_product():
    """x ~ N(0, 1), pulled to N(m, 1)^g: a mean of g m / (1 + g), to second order in g."""
    flow = TransitionFlow(1, 1, (4,), 0)

    def exact(none, x, t):  # the velocity of N(0, 1) to N(0, 1)
        return (2 * t - 1) / (t**2 + (1 - t) ** 2) * x

    flow.flow.forward = exact
    noise = torch.randn(4000, 5, generator=torch.Generator().manual_seed(0))
    for g in (0.05, 0.2):
        ends = flow.follow(noise, 100, lambda x, g=g: g * (2.0 - x))
        assert float(ends.mean()) == pytest.approx(2 * g / (1 + g), rel=g, abs=0.02)
    assert torch.equal(flow.follow(noise, 10, lambda x: 0 * x), flow.follow(noise, 10))


def test_micro_batches_change_nothing():
    found = []
    for tokens in (16384, 3):
        rates = replace(INSIDE.optimization, optimizer="sgd", microbatch_tokens=tokens)
        found.append(moved(replace(SMALL, inside=replace(INSIDE, optimization=rates))))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name], atol=1e-6, rtol=1e-5)


def test_it_goes_on_where_it_was_saved():
    made = learner_of()
    made.step(made.prepare(drawn()))
    policy = POLICY.load(1)
    policy.load_state_dict(made.policy.state_dict())
    other = Learner(policy, SMALL, seed=0)
    other.load_state(copy.deepcopy(made.save_state()))
    for one in (made, other):
        one.step(one.prepare(drawn(move=1, seed=1)))
    for name in made.models.modules:
        assert all(map(torch.equal, made.models[name].state_dict().values(), other.models[name].state_dict().values()))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"share": 1.5}, r"share 1.5, which is in \[0, 1\]"),
        ({"share": math.nan}, r"in \[0, 1\]"),
        ({"warmup": -1}, "counts moves from 0"),
        ({"flow_steps": 0}, "flow_steps 0, at least 1"),
        ({"hidden": ()}, "widths of the flow's layers"),
        ({"guidance": -1.0}, "guidance is -1.0: how much"),
        ({"guidance": math.nan}, "guidance is nan"),
        ({"guidance": 1.0, "share": 0.0}, "no draws to guide"),
        ({"flow_learning_rate": math.inf}, "flow_learning_rate inf"),
        ({"inside": FeasibilityGuided(critic=INSIDE.critic)}, "learns by choices or costs"),
        ({"inside": DQN()}, "learns by choices or costs"),
    ],
)
def test_settings_of_synthetic_replay_that_mean_nothing_are_refused(settings, reason):
    with pytest.raises(ValueError, match=reason):
        replace(SMALL, **settings)


def test_a_run_that_ends_before_its_policy_moves_is_refused():
    run = recipes.function("synther")()
    with pytest.raises(ValueError, match=r"update\.warmup is 2500, and the run makes 2500 moves.*update\.warmup=625"):
        compose.check(replace(run, steps=10))
    compose.check(replace(run, steps=11))


@pytest.mark.slow
def test_beside_a_buffer_it_draws_from_the_first_move_after_its_own():
    """Online: SAC, whose environment acts meanwhile; the units of the flow grow with what comes in."""
    sac = recipes.load("sac", {"learning_starts": "20", "store.minibatch": "8"})
    update = SyntheticReplay(inside=sac.update, warmup=5, hidden=(8,), flow_steps=2)
    trainer = Trainer(replace(sac, update=update, held_out=None, threads=1))
    trainer.begin()
    told = [trainer.advance()[0] for _ in range(4)]
    seen = float(trainer.learner.models[TRANSITIONS].units.count)
    trainer.close()
    drawn_in = [number for number, metrics in enumerate(told) if "synthetic/share" in metrics]
    assert drawn_in and told[-1]["synthetic/share"] == 0.5 and told[-1]["replay/moves"] > 5
    assert "q/loss" not in told[drawn_in[0] - 1] if drawn_in[0] else True
    assert seen == told[-1]["env_steps"]
