"""Worlds that draw by denoising: solver and losses by hand, what they learn of known environments, own rollouts, and refusals."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from test_learned_worlds import SMALL, drawn, ready

from gimbal import recipes
from gimbal.config import override
from gimbal.dataflow.replay.transitions import PATH, Transitions
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.world_denoising import (
    AGAIN,
    DEPTH,
    DRAWN,
    DRIFT,
    NOISE,
    OLD,
    OwnRollouts,
    WorldDenoising,
    contrast,
    noised,
)
from gimbal.policies.diffusion_dynamics import LEAST, MOST, DiffusionDynamics, DiffusionDynamicsNetwork, levels
from gimbal.policies.planned import Planned, world_in
from gimbal.policies.planners import MPPI
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

WORLD = DiffusionDynamics(observations=3, actions=2, hidden=(8,), evaluations=3, draws=2)
POLICY = Planned(world=WORLD, planner=MPPI(candidates=2, horizon=2), bound=1.5)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def observing(spec=WORLD):
    """A world whose units are those of some steps, these steps, and their targets."""
    world, batch = spec.load(3), drawn(30, seed=4)
    steps = batch.decisions
    seen, action, after = steps.observation_NSO[:, 0], steps.action_NSA[:, 0], steps.final_NO
    world.observe(seen, action, after, batch.reward_NS[:, 0])
    return world, seen, action, torch.cat([after - seen, batch.reward_NS], -1)


def read(world, seen, action, noisy, size):
    """D, written out."""
    x = (torch.cat([seen, action], -1) - world.inputs.mean_O) / (world.inputs.variance_O + 1e-8).sqrt()
    waves = [f(rate * size.log()) for f in (torch.sin, torch.cos) for rate in (0.5, 1, 2)]
    x = torch.cat([x, noisy / (1 + size**2).sqrt(), size.log() / 4, *waves], -1)
    x = torch.nn.functional.silu(x @ world.weights[0][0] + world.biases[0][0, 0])
    said = x @ world.weights[1][0] + world.biases[1][0, 0]
    return noisy / (1 + size**2) + size / (1 + size**2).sqrt() * said


def test_a_draw_is_the_solvers_steps_and_the_same_noise_is_the_same_step_to_the_bit():
    world, seen, action, _ = observing()
    noise, sizes = normal(30, 4), levels(3)
    assert sizes[0] == pytest.approx(MOST) and sizes[-1] == pytest.approx(LEAST)
    at = [torch.full((30, 1), size) for size in sizes]
    first = read(world, seen, action, MOST * noise, at[0])
    x = sizes[1] * noise + first
    second = read(world, seen, action, x, at[1])
    ahead = second + (second - first) * math.log(sizes[1] / sizes[2]) / (2 * math.log(sizes[0] / sizes[1]))
    x = sizes[2] / sizes[1] * x + (1 - sizes[2] / sizes[1]) * ahead
    target = world.targets.mean_O + world.spread_T * read(world, seen, action, x, at[2])
    after, reward, ended = world.step(seen, action, torch.rand(30), noise)
    torch.testing.assert_close(torch.cat([after - seen, reward[:, None]], -1), target, rtol=1e-4, atol=1e-5)
    assert not ended.any()
    again = world.step(seen, action, torch.rand(30), noise)
    assert torch.equal(after, again[0]) and torch.equal(reward, again[1])


@pytest.mark.parametrize("deviation", [0.05, 0.1, 0.3, 1.0])
def test_the_exact_denoiser_of_a_gaussian_gives_draws_of_its_mean_and_deviation(deviation, monkeypatch):
    """In 8 passes, within an eighth; Euler's steps would leave two thirds."""

    def exact(self, inputs_KI, noisy_KT, size_K1):
        return 0.5 + deviation**2 / (deviation**2 + size_K1**2) * (noisy_KT - 0.5)

    monkeypatch.setattr(DiffusionDynamicsNetwork, "_denoised", exact)
    world = replace(WORLD, evaluations=8).load(0)
    found = world.drawn(torch.zeros(4000, 3), torch.zeros(4000, 2), normal(4000, 4))
    assert found.mean().item() == pytest.approx(0.5, abs=0.06 * deviation)
    assert found.std().item() == pytest.approx(deviation, rel=0.125)


def learned(target_of, moves=600, **fields):
    """A world of 2 observations and 1 action that has learned o' - o and r = target_of(seen, action, generator)."""
    g = torch.Generator().manual_seed(0)
    seen, action = torch.randn(4000, 2, generator=g), torch.randn(4000, 1, generator=g)
    target = target_of(seen, action, g)
    world = DiffusionDynamics(observations=2, actions=1, hidden=(64, 64), **fields).load(0)
    world.observe(seen, action, seen + target[:, :2], target[:, 2])
    optimizer = torch.optim.AdamW(world.parameters(), lr=4e-3, weight_decay=0.0)
    for move in range(moves):
        rows = torch.randint(4000, (128,), generator=g)
        clean = world.units(target[rows])
        noisy, size = noised(clean, torch.randn(128, 4, generator=g))
        loss = world.missed(world.denoised(seen[rows], action[rows], noisy, size), clean, size).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 4e-3 * (1 - move / moves)
        optimizer.step()
    return world


@pytest.mark.slow
def test_a_linear_gaussian_environment_is_drawn_with_its_mean_and_deviation():
    deviation = torch.tensor([0.5, 0.4, 0.6])

    def mean(seen, action):
        return torch.cat([0.5 * action, -action, seen[:, :1]], -1)

    world = learned(lambda seen, action, g: mean(seen, action) + deviation * torch.randn(len(seen), 3, generator=g))
    seen, action = normal(3000, 2, seed=8), normal(3000, 1, seed=9)
    after, reward, _ = world.step(seen, action, torch.zeros(3000), normal(3000, 3, seed=10))
    off = torch.cat([after - seen, reward[:, None]], -1) - mean(seen, action)
    assert off.mean(0).abs().max() < 0.08
    torch.testing.assert_close(off.std(0), deviation, rtol=0.15, atol=0)


@pytest.mark.slow
def test_two_outcomes_are_both_drawn_and_next_to_nothing_between_them():
    """One Gaussian would have a third of its draws between -.5 and .5."""

    def either(seen, action, g):
        side = 2 * (torch.rand(len(seen), 1, generator=g) < 0.7) - 1
        return side + 0.1 * torch.randn(len(seen), 3, generator=g)

    world = learned(either)
    seen = normal(3000, 2, seed=8)
    after, _, _ = world.step(seen, normal(3000, 1, seed=9), torch.zeros(3000), normal(3000, 3, seed=10))
    moved = (after - seen)[:, 0]
    assert 0.6 < (moved > 0).float().mean() < 0.8 and (moved.abs() < 0.5).float().mean() < 0.08


def test_futures_and_plans_go_on_by_the_worlds_own_draws():
    world, seen, action, _ = observing()
    actions = action[:, None].expand(-1, 3, -1)
    found = world.follow(seen, actions)
    assert found.next_MNSO.shape == (2, 30, 3, 3) and found.log_std_MNST is None and found.end_MNS is None
    assert torch.equal(found.seen_MNSO[:, :, 1], found.next_MNSO[:, :, 0])
    noise = torch.randn((2, 30, 3, 4), generator=torch.Generator().manual_seed(0))
    step = world.step(seen, action, torch.zeros(30), noise[1, :, 0])
    torch.testing.assert_close(found.next_MNSO[1, :, 0], step[0])
    earned, noise = [], torch.randn((2, 1, 3, 4), generator=torch.Generator().manual_seed(0))
    for draw in range(2):
        now, total = seen, 0.0
        for number in range(3):
            now, reward, _ = world.step(now, action, torch.zeros(30), noise[draw, :, number].expand(30, -1))
            total = total + reward
        earned.append(total)
    torch.testing.assert_close(world.returns(seen, actions), torch.stack(earned).mean(0), rtol=1e-4, atol=1e-4)


def test_nothing_counts_behind_an_end_and_ends_are_learned_from_where_a_step_led():
    world, seen, action, _ = observing(replace(WORLD, ends="learned"))
    with torch.no_grad():
        for layer in world.end[::2]:
            layer.weight.zero_()
            layer.bias.zero_()
        world.end[-1].bias.fill_(1.0)
    actions = action[:, None].expand(-1, 3, -1)
    assert world.step(seen, action, torch.zeros(30), normal(30, 4))[2].all()
    noise = torch.randn((2, 1, 3, 4), generator=torch.Generator().manual_seed(0))[:, 0, 0]
    first = [world.step(seen, action, torch.zeros(30), x.expand(30, -1))[1] for x in noise]
    torch.testing.assert_close(world.returns(seen, actions), torch.stack(first).mean(0))
    learner = Learner(replace(POLICY, world=replace(WORLD, ends="learned")).load(1), WorldDenoising(), seed=0)
    learner.prepare(drawn(20, seed=5, move=-1))
    loss = next(learner.update.losses(learner.models, ready(learner, drawn(ended=True))))
    logit = learner.policy.world.ending(*(x[:, 0] for x in _rows(drawn(ended=True))))
    assert loss.metrics["world/end"] == pytest.approx(torch.nn.functional.softplus(-logit).mean().item(), rel=1e-4)
    assert loss.metrics["loss"] == pytest.approx(loss.metrics["world/loss"] + loss.metrics["world/end"], rel=1e-4)


def _rows(batch):
    steps = batch.decisions
    return steps.observation_NSO, steps.action_NSA, steps.final_NO[:, None]


def test_the_loss_is_the_error_of_the_clean_target_in_the_networks_own_units():
    learner = Learner(POLICY.load(1), WorldDenoising(), seed=0)
    learner.prepare(drawn(20, seed=5, move=-1))
    batch, world = ready(learner, drawn()), learner.policy.world
    seen, action, after = (x[:, 0] for x in _rows(batch))
    clean = (torch.cat([after - seen, batch.reward_NS], -1) - world.targets.mean_O) / world.spread_T
    noise = batch.facts[NOISE][:, 0]
    size = (-0.7 + 1.2 * noise[:, 4:]).exp().clamp(LEAST, MOST)
    error = read(world, seen, action, clean + size * noise[:, :4], size) - clean
    expected = ((1 + size**2) / size**2 * error**2).mean()
    loss = next(learner.update.losses(learner.models, batch))
    torch.testing.assert_close(loss.value, expected, rtol=1e-4, atol=1e-5)
    assert "world/nll" not in learner.prepare(drawn(20, seed=6, move=-1)).facts


# Own rollouts


def test_with_q_of_one_it_is_denoising_of_own_draws():
    world, seen, action, _ = observing()
    clean, old = normal(30, 4), normal(30, 4, seed=2)
    noisy, size = noised(clean, normal(30, 5, seed=1))
    now = world.denoised(seen, action, noisy, size)
    found = contrast(world, torch.ones(30), now, old, clean, size, b=1.0)
    torch.testing.assert_close(found, world.missed(now, clean, size))


def test_with_q_of_one_half_there_is_no_push_from_the_old_world_and_the_sign_is_that_of_q():
    world, seen, action, _ = observing()
    clean = normal(30, 4)
    noisy, size = noised(clean, normal(30, 5, seed=1))
    old = world.denoised(seen, action, noisy, size).detach()

    def push(good, b=0.5):
        now = old.clone().requires_grad_()
        (found,) = torch.autograd.grad(contrast(world, torch.full((30,), good), now, old, clean, size, b).sum(), now)
        return found

    torch.testing.assert_close(push(0.5), torch.zeros(30, 4), atol=1e-5, rtol=0)
    plain = old.clone().requires_grad_()
    (matching,) = torch.autograd.grad(world.missed(plain, clean, size).sum(), plain)
    torch.testing.assert_close(push(0.8), 0.5 * 0.6 * matching, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(push(0.2), -0.5 * 0.6 * matching, rtol=1e-4, atol=1e-4)


def test_candidates_are_ranked_by_their_distance_and_one_alone_or_all_alike_by_nothing():
    own = torch.tensor([[[0.0], [1.0], [3.0]]])
    wrong = own[..., 0].abs()
    near = OwnRollouts(candidates=3, spread=0.0).good(wrong, own)
    assert near[0].tolist() == pytest.approx([1.0, 0.5 + 0.5 * (4 / 3 - 1) / math.sqrt(14) * 3, 0.0], abs=1e-4)
    assert OwnRollouts(candidates=3).good(torch.ones(1, 3), torch.ones(1, 3, 1)).tolist() == [[0.5, 0.5, 0.5]]
    assert OwnRollouts(candidates=1).good(torch.ones(1, 1), own[:, :1]).tolist() == [[0.5]]


def test_a_world_that_draws_as_the_environment_does_is_not_pushed_to_the_middle():
    """Draws and records of two outcomes and what is between: with the spread each is as good as another, without it the middle wins."""
    g = torch.Generator().manual_seed(0)

    def outcomes(*shape):
        side = 2 * torch.randint(0, 2, (*shape, 1), generator=g).float() - 1
        return side * (torch.rand(*shape, 1, generator=g) < 0.8) + 0.3 * torch.randn(*shape, 1, generator=g)

    own, record = outcomes(40_000, 4), outcomes(40_000, 1)
    wrong = (own - record).square().mean(-1).sqrt()
    middle = own[..., 0].abs() < 0.5
    for spread, least, most in ((1.0, -0.02, 0.02), (0.0, 0.05, 1.0)):
        good = OwnRollouts(spread=spread).good(wrong, own)
        assert least < (good[middle].mean() - good[~middle].mean()).item() < most


def pathed(known=3):
    """Eight rows with paths of three steps, of which ``known`` are."""
    batch, g = drawn(), torch.Generator().manual_seed(6)
    path = torch.randn(8, 1, 3, 2 + 3 + 2, generator=g)
    path[:, 0, 0, :2] = batch.decisions.action_NSA[:, 0]
    path[:, :, known:] = torch.nan
    return batch.with_columns({PATH: path})


@pytest.mark.parametrize("known", [1, 2, 3])
def test_candidates_are_drawn_by_the_old_world_where_its_own_rollout_is(known):
    own = OwnRollouts(candidates=2, b=0.7, weight=2.0)
    learner = Learner(POLICY.load(1), WorldDenoising(own=own), seed=0)
    learner.prepare(drawn(20, seed=5, move=-1))
    with torch.no_grad():
        for weight in learner.policy.world.parameters():
            weight.mul_(1.1)
    batch = ready(learner, pathed(known))
    world, old, facts = learner.policy.world, learner.models[OLD].world, batch.facts
    assert torch.equal(old.targets.mean_O, world.targets.mean_O)
    expected, depths = [], set()
    for row in range(8):
        path = facts[PATH][row, 0]
        depth = int(facts[DEPTH][row, 0] * known)
        depths.add(depth)
        now = batch.decisions.observation_NSO[row]
        for step in range(depth):
            now = old.step(now, path[step : step + 1, :2], torch.zeros(1), facts[DRIFT][row, 0, step : step + 1])[0]
        seen, action = now.expand(2, -1), path[depth : depth + 1, :2].expand(2, -1)
        with torch.no_grad():
            drawn_to = old.drawn(seen, action, facts[DRAWN][row, 0])
        wanted = old.units(torch.cat([path[depth, 2:5] - now[0], path[depth, 5:6]]))
        wrong = (drawn_to - wanted).square().mean(-1).sqrt()
        good = own.good(wrong[None], drawn_to[None])[0]
        noise = facts[AGAIN][row, 0]
        size = (-0.7 + 1.2 * noise[:, 4:]).exp().clamp(LEAST, MOST)
        noisy = drawn_to + size * noise[:, :4]
        said, before = read(world, seen, action, noisy, size), read(old, seen, action, noisy, size)
        scale = (1 + size**2) / size**2
        up = (scale * (0.3 * before + 0.7 * said - drawn_to) ** 2).mean(-1)
        down = (scale * (1.7 * before - 0.7 * said - drawn_to) ** 2).mean(-1)
        expected.append((good * up + (1 - good) * down).mean())
    assert depths == set(range(known))
    loss = next(learner.update.losses(learner.models, batch))
    assert loss.metrics["own/loss"] == pytest.approx(torch.stack(expected).mean().item(), rel=1e-3)
    assert loss.metrics["loss"] == pytest.approx(loss.metrics["world/loss"] + 2 * loss.metrics["own/loss"], rel=1e-4)
    assert loss.metrics["own/depth"] == pytest.approx(np.mean([int(x * known) for x in facts[DEPTH][:, 0]]), abs=1e-6)
    parts = [next(learner.update.losses(learner.models, batch.select(rows))).value for rows in torch.arange(8).split(3)]
    torch.testing.assert_close(sum(parts), loss.value)


def test_with_a_weight_of_nothing_it_is_the_loss_on_real_steps():
    values = []
    for own in (None, OwnRollouts(weight=0.0)):
        learner = Learner(POLICY.load(1), WorldDenoising(own=own, optimization=Optimization()), seed=0)
        learner.prepare(drawn(20, seed=5, move=-1))
        batch = ready(learner, drawn() if own is None else pathed())
        values.append(next(learner.update.losses(learner.models, batch)).value)
    torch.testing.assert_close(values[1], values[0])


FEW = {"policy.planner.candidates": 4, "policy.planner.horizon": 3, "policy.world.hidden": (8,)}


@pytest.mark.parametrize("own", [False, True])
def test_a_resumed_run_that_acts_by_a_diffusion_world_goes_on_to_the_same_bits(own, tmp_path, single_thread):
    update = WorldDenoising(own=OwnRollouts() if own else None)
    base = recipes.function("pets")()
    policy = replace(base.policy, world=DiffusionDynamics(observations=3, actions=1, evaluations=3, draws=2))
    run = replace(base, policy=policy, update=update, store=replace(base.store, path=3 if own else 1))
    trainer = Trainer(run := override(run, {**SMALL, **FEW}))
    for _ in range(3):
        trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    for _ in range(2):
        metrics = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(metrics)
    assert {"world/error", "world/gap", "world/loss"} <= metrics.keys() and "world/nll" not in metrics
    assert ("own/loss" in metrics) == own
    trainer.close()
    resumed.close()


def test_the_world_is_the_one_that_was_saved(tmp_path):
    policy = replace(POLICY, world=replace(WORLD, ends="learned")).load(7)
    policy.save(tmp_path)
    found, bound = world_in(str(tmp_path))
    assert (found.spec, bound) == (replace(WORLD, ends="learned"), 1.5)
    assert all(torch.equal(x, found.state_dict()[name]) for name, x in policy.world.state_dict().items())


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: replace(WORLD, evaluations=1), "a draw takes 2 passes or more"),
        (lambda: replace(WORLD, draws=0), "at least 1 draw"),
        (lambda: replace(WORLD, actions=0), "each is at least 1"),
        (lambda: replace(WORLD, ends="sometimes"), "never, learned, or a function"),
        (lambda: OwnRollouts(b=0.0), "above 0 and at most 1"),
        (lambda: OwnRollouts(candidates=0), "at least 1"),
        (lambda: WORLD.load(0).follow(torch.zeros(2, 4), torch.zeros(2, 1, 2)), "world.observations"),
        (lambda: recipes.load("diffusion_world", {"store.path": 3}), "set update.own='OwnRollouts"),
        (lambda: recipes.load("persist_world", {"store.path": 1}), "set store.path=3, or update.own=none"),
        (lambda: recipes.load("iql", {"store.path": 3}), "learns no world from them: set store.path=1"),
        (lambda: recipes.load("diffusion_world", {"policy": recipes.function("world")().policy}), "ModelLearning"),
        (lambda: recipes.load("world", {"policy": recipes.function("diffusion_world")().policy}), "has none: set"),
        (lambda: recipes.load("pets", {"store": Transitions(n=3)}), "store.n=1"),
        (lambda: recipes.load("mbpo", {"update.world": "DiffusionDynamics(observations=3, actions=1)"}), "Dynamics"),
    ],
)
def test_what_a_diffusion_world_does_not_go_with_is_refused_in_a_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()
