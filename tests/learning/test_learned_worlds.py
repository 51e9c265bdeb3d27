"""Learned worlds: the loss against torch's distributions, a known optimum, branches step by step, planners, runs and their limits."""

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Bernoulli, Normal

from gimbal import recipes
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.once import Once
from gimbal.dataflow.replay.transitions import FRESH, MOVE, Transitions
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.base import NotFinite
from gimbal.learning.updates.dyna import ACTION, BRANCH, NOISE, PICK, Dyna
from gimbal.learning.updates.model_learning import foreseen, lengths
from gimbal.learning.updates.soft_actor_critic import ACTS, SoftActorCritic
from gimbal.learning.updates.td3 import TD3, Imitation
from gimbal.policies.control import Steps
from gimbal.policies.dynamics import Dynamics
from gimbal.policies.planned import Planned
from gimbal.policies.planners import CEM, MPPI
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import TrainBatch
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

WORLD = Dynamics(observations=3, actions=2, hidden=(8,), members=2)
POLICY = SquashedGaussian(observations=3, actions=2, hidden=(8,), bound=1.5)
INSIDE = SoftActorCritic(
    critic=ActionValues(observations=3, actions=2, hidden=(8,), bound=1.5),
    gamma=0.9,
    optimization=Optimization(max_grad_norm=math.inf),
)


def far(next_KO):
    return next_KO[:, 0] > 0.5


def same(next_KO):
    return next_KO


def drawn(count=8, move=0, seed=0, ended=False):
    """Single real steps, drawn for one move; with FRESH they have just come in."""
    g = torch.Generator().manual_seed(seed)
    steps = Steps(
        observation_NSO=torch.randn(count, 1, 3, generator=g),
        action_NSA=1.4 * torch.tanh(torch.randn(count, 1, 2, generator=g)),
        final_NO=torch.randn(count, 3, generator=g),
        length_N=torch.ones(count, dtype=torch.long),
        terminated_N=torch.full((count,), ended),
    )
    reward_NS = torch.randn(count, 1, generator=g)
    mask_NS = torch.ones(count, 1, dtype=torch.bool)
    return TrainBatch(mask_NS=mask_NS, reward_NS=reward_NS, decisions=steps, facts={MOVE: torch.full((count,), move)})


def learner_of(update, policy=POLICY):
    learner = Learner(policy.load(1), update, seed=0)
    learner.prepare(drawn(20, FRESH, seed=5))
    return learner


def ready(learner, batch):
    batch = learner.prepare(batch)
    return learner.update.survey(learner.models, batch)[0]


@pytest.mark.parametrize("ends", ["never", "learned"])
def test_the_loss_and_its_gradient_are_those_of_torchs_distributions_member_by_member(ends):
    learner = learner_of(Dyna(inside=INSIDE, world=replace(WORLD, ends=ends)))
    world, batch = learner.models["world"], ready(learner, drawn(ended=True))
    loss = next(learner.update.losses(learner.models, batch))
    steps = batch.decisions
    seen, action, after = steps.observation_NSO[:, 0], steps.action_NSA[:, 0], steps.final_NO
    target = torch.cat([after - seen, batch.reward_NS], -1)
    normal = (torch.cat([seen, action], -1) - world.inputs.mean_O) / (world.inputs.variance_O + 1e-8).sqrt()
    spread, expected = (world.targets.variance_O + 1e-8).sqrt(), torch.zeros(())
    for m in range(2):
        x = torch.nn.functional.silu(normal @ world.weights[0][m] + world.biases[0][m, 0])
        x = x @ world.weights[1][m] + world.biases[1][m, 0]
        mean, std = world.targets.mean_O + x[:, :4] * spread, spread * (-4 + 5 * x[:, 4:8].sigmoid()).exp()
        expected = expected - Normal(mean, std).log_prob(target).sum(-1).mean()
        if ends == "learned":
            expected = expected - Bernoulli(logits=x[:, 8]).log_prob(torch.ones(len(x))).mean()
    assert loss.of == ("world",)
    torch.testing.assert_close(loss.value, expected, rtol=1e-4, atol=1e-4)
    weights = list(world.parameters())
    ours, theirs = torch.autograd.grad(loss.value, weights), torch.autograd.grad(expected, weights)
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def test_a_linear_gaussian_system_is_learned_to_its_known_optimum():
    """o' = o + a B + .1 e, r = o_0 + .2 e: the least surprise is the entropy of the noise, the least squared error its variance."""
    g = torch.Generator().manual_seed(0)
    seen, action = torch.randn(4000, 2, generator=g), torch.randn(4000, 1, generator=g)
    after = seen + action @ torch.tensor([[0.5, -1.0]]) + 0.1 * torch.randn(4000, 2, generator=g)
    reward = seen[:, 0] + 0.2 * torch.randn(4000, generator=g)
    world = Dynamics(observations=2, actions=1, hidden=(), members=2).load(0)
    world.observe(seen[:2000], action[:2000], after[:2000], reward[:2000])
    optimizer = torch.optim.LBFGS(world.parameters(), max_iter=120, line_search_fn="strong_wolfe")
    never = torch.zeros(4000, 1, dtype=torch.bool)

    def surprise(part):
        found = world.follow(seen[part], action[part][:, None])
        return found, world.surprise(found, after[part][:, None], reward[part][:, None], never[part])

    def closure():
        optimizer.zero_grad()
        loss = surprise(slice(2000))[1].mean()
        loss.backward()
        return loss

    optimizer.step(closure)
    with torch.no_grad():
        found, nll = surprise(slice(2000, None))
    entropy = sum(math.log(std) + 0.5 * math.log(2 * math.pi * math.e) for std in (0.1, 0.1, 0.2))
    assert float(nll.mean()) == pytest.approx(entropy, abs=0.03)
    assert float((found.next_MNSO[:, :, 0] - after[2000:]).square().mean()) == pytest.approx(0.01, rel=0.05)
    assert float((found.reward_MNS[..., 0] - reward[2000:]).square().mean()) == pytest.approx(0.04, rel=0.05)


@pytest.mark.parametrize("ends", ["never", far])
def test_branches_are_what_the_world_answers_step_by_step_and_a_horizon_is_no_end(ends):
    learner = learner_of(Dyna(inside=INSIDE, world=replace(WORLD, ends=ends), horizon=3, share=0.75))
    models, method = learner.models, learner.update
    batch = ready(learner, drawn())
    given = method._imagined(models, batch)
    steps, world = given.decisions, models["world"]
    # Of 8 steps 6 are imagined, in two branches from the last two rows; the first two rows stay as they are.
    assert given.shape == (4, 3) and given.mask_NS[:2].tolist() == [[True, False, False]] * 2
    assert torch.equal(steps.observation_NSO[:2, 0], batch.decisions.observation_NSO[:2, 0])
    assert torch.equal(steps.next_NSO[:2, 0], batch.decisions.final_NO[:2])
    for branch, row in ((2, 6), (3, 7)):
        seen, on = batch.decisions.observation_NSO[row, 0], True
        for step in range(3):
            assert bool(given.mask_NS[branch, step]) == on
            if not on:
                continue
            torch.testing.assert_close(steps.observation_NSO[branch, step], seen)
            noise = batch.facts[BRANCH + ACTION][row, 0, step][None]
            action = learner.policy.draw(seen[None], noise, torch.ones(1))[0]
            member = int(2 * batch.facts[BRANCH + PICK][row, 0, step])
            with torch.no_grad():
                mean, log_std, _ = world(seen.expand(2, 1, 3), action)
            came = (
                mean[member, 0] + world.spread_T * log_std[member, 0].exp() * batch.facts[BRANCH + NOISE][row, 0, step]
            )
            seen = seen + came[:3]
            torch.testing.assert_close(steps.action_NSA[branch, step], action[0])
            torch.testing.assert_close(given.reward_NS[branch, step], came[3])
            torch.testing.assert_close(steps.next_NSO[branch, step], seen)
            end = ends is far and bool(seen[0] > 0.5)
            assert bool(steps.ended_NS[branch, step]) == end
            on = not end
    discount = method.inside.backed(given)[1].unique()
    assert discount.tolist() == [pytest.approx(0.9)] if ends == "never" else bool((discount == 0).any())
    torch.testing.assert_close(given.facts["weight"][given.mask_NS].unique(), torch.tensor([1 / 8]))
    assert len(given.facts[ACTS][given.mask_NS].unique(dim=0)) == int(given.mask_NS.sum()), (
        "each step has noise of its own"
    )


def weights_after(update, batches=3):
    learner = learner_of(update)
    for number in range(batches):
        learner.step(learner.prepare(drawn(move=number, seed=number)))
    return {
        name: torch.cat([x.detach().flatten() for x in learner.models[name].parameters()])
        for name in learner.models.modules
    }


@pytest.mark.parametrize("limit", [{"share": 0.0}, {"horizon": 0}])
def test_without_imagined_steps_it_is_the_update_inside_bit_for_bit(limit):
    plain = learner_of(INSIDE)
    for number in range(3):
        plain.step(plain.prepare(drawn(move=number, seed=number)))
    ours = weights_after(Dyna(inside=INSIDE, world=WORLD, **limit))
    for name in ("policy", "critic", "target", "temperature"):
        theirs = torch.cat([x.detach().flatten() for x in plain.models[name].parameters()])
        assert torch.equal(ours[name], theirs), name
    imagining = weights_after(Dyna(inside=INSIDE, world=WORLD))
    assert not torch.equal(imagining["policy"], ours["policy"])


def test_share_1_learns_from_nothing_but_the_world():
    update = Dyna(inside=INSIDE, world=WORLD, horizon=2, share=1.0)
    learner = learner_of(update)
    given = update._imagined(learner.models, ready(learner, drawn()))
    assert given.shape == (4, 2) and bool(given.mask_NS.all())


def test_what_is_foreseen_of_new_steps_is_measured_before_they_count():
    world = WORLD.load(0)
    first, second = drawn(6, FRESH, seed=1), drawn(6, FRESH, seed=2)
    # Two rows: four steps, of which each goes on where the one before ended, and two.
    steps = second.decisions
    for n in (0, 1, 2, 4):
        steps.observation_NSO[n + 1, 0] = steps.final_NO[n]
    assert lengths(steps.observation_NSO[:, 0], steps.final_NO, steps.ended_NS[:, 0]) == [4, 2]
    assert foreseen(world, first) == {} and float(world.targets.count) == 6
    with torch.no_grad():
        gaps = []
        for member in range(2):
            for begin, end in ((0, 4), (4, 6)):
                seen, total = steps.observation_NSO[begin, 0], 0.0
                for n in range(begin, end):
                    mean = world(seen.expand(2, 1, 3), steps.action_NSA[n])[0][member, 0]
                    seen, total = seen + mean[:3], total + float(mean[3]) - float(second.reward_NS[n, 0])
                gaps.append(total)
    told = foreseen(world, second)
    assert told["world/gap"] == pytest.approx(sum(gaps) / 4, rel=1e-4) and told["world/gap_steps"] == 3
    assert float(world.targets.count) == 12


def test_nothing_that_is_not_finite_moves_the_world():
    learner = learner_of(Dyna(inside=INSIDE, world=WORLD))
    batch, before = drawn(), learner.models["world"].weights[0].detach().clone()
    batch.reward_NS[0] = math.nan
    with pytest.raises(NotFinite, match="not applied"):
        learner.step(learner.prepare(batch))
    assert torch.equal(learner.models["world"].weights[0], before)


@pytest.mark.parametrize(
    "planner",
    [CEM(candidates=256, iterations=4, horizon=4, hold=2, elites=16), MPPI(candidates=256, iterations=4, horizon=4)],
)
def test_planners_find_the_best_actions_and_hold_them(planner):
    noise = torch.randn(4, 256, planner.knots, 1, generator=torch.Generator().manual_seed(0))

    def returns(action_BPHA):
        assert action_BPHA.shape[1:] == (256, 4, 1) and float(action_BPHA.abs().max()) <= 1
        if planner.hold == 2:
            assert torch.equal(action_BPHA[:, :, 0], action_BPHA[:, :, 1])
        wanted_B = torch.tensor([0.6, -0.3])[:, None, None]
        return -(action_BPHA[..., 0] - wanted_B).square().sum(-1)

    torch.testing.assert_close(planner(returns, 2, noise)[:, 0], torch.tensor([0.6, -0.3]), atol=0.05, rtol=0)


def test_weights_of_candidates_in_their_limits():
    worth = torch.tensor([[1.0, 3.0, 2.0]])
    assert CEM(candidates=3, elites=3).weights(worth).tolist() == [[pytest.approx(1 / 3)] * 3]
    assert CEM(candidates=3, elites=1).weights(worth).tolist() == [[0, 1, 0]]
    assert MPPI(temperature=1e-3).weights(worth).tolist() == [[0, 1, 0]]
    torch.testing.assert_close(MPPI(temperature=1e6).weights(worth), torch.full((1, 3), 1 / 3), atol=1e-4, rtol=0)
    assert bool(MPPI().weights(torch.ones(1, 3)).isfinite().all()), "all alike"


def test_a_plan_does_not_depend_on_who_is_planned_beside_it_and_its_record_is_evaluated_as_drawn(tmp_path):
    spec = Planned(world=WORLD, planner=MPPI(horizon=3, candidates=8), bound=1.5)
    policy, g = spec.load(0), torch.Generator().manual_seed(0)
    seen, noise = torch.randn(5, 3, generator=g), torch.randn(5, 2, generator=g)
    action, behavior = policy.draw(seen, noise, torch.ones(5))
    alone = torch.cat([policy.draw(seen[i : i + 1], noise[i : i + 1], torch.ones(1))[0] for i in range(5)])
    torch.testing.assert_close(action, alone, atol=1e-4, rtol=0)
    torch.testing.assert_close(policy.assess(seen, action, 1.0)[0], behavior)
    assert float(action.abs().max()) <= 1.5
    assert torch.equal(policy.draw(seen, noise, torch.zeros(5))[0], policy.mode(seen))
    policy.save(tmp_path)
    assert torch.equal(spec.at(tmp_path).load(9).mode(seen), policy.mode(seen))
    with pytest.raises(ValueError, match="was saved with"):
        replace(spec, bound=1.0, model=str(tmp_path)).load()


SMALL = {
    "held_out": None,
    "engine.segment": 5,
    "store.minibatch": 16,
    "store.learning_starts": 5,
    "sampling.max_length": 12,
}


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("pets", {}),
        ("own_rollouts", {}),
        ("pde_refiner", {}),
        ("mbpo", {}),
        ("mbpo", {"store.path": 3}),
        ("mbpo", {"update.world.refine": (0.1, 0.01)}),
    ],
)
def test_a_resumed_run_goes_on_to_the_same_bits(name, more, tmp_path, single_thread):
    planner = {"policy.planner.candidates": 4, "policy.planner.horizon": 3}
    own = ({"store.update_to_data": 0.5} if name == "mbpo" else planner) | more
    trainer = Trainer(run := recipes.load(name, {**SMALL, **own}))
    for _ in range(3):
        trainer.advance()
    resumed = Trainer(run, trainer.save(tmp_path, {}))
    for _ in range(2):
        metrics = trainer.advance()[0]
        assert deterministic(resumed.advance()[0]) == deterministic(metrics)
    assert {"world/nll", "world/error", "world/gap", "world/loss"} <= metrics.keys() and metrics["replay/moves"] > 0
    assert 1 < metrics.get("world/path", 2) < 5 and ("world/refinement" in metrics) == bool(
        "refine" in str([name, more])
    )
    for own_model, other in zip(
        trainer.learner.models.modules.values(), resumed.learner.models.modules.values(), strict=True
    ):
        for name_of, x in own_model.state_dict().items():
            assert torch.equal(x, other.state_dict()[name_of])
    trainer.close()
    resumed.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Dyna(inside=INSIDE, world=WORLD, horizon=-1), "counts imagined steps"),
        (lambda: Dyna(inside=INSIDE, world=WORLD, share=1.5), r"in \[0, 1\]"),
        (lambda: Dyna(inside=INSIDE, world=WORLD, world_learning_rate=math.nan), "a number from 0"),
        (lambda: replace(WORLD, members=0), "at least 1"),
        (lambda: replace(WORLD, ends="sometimes"), "never, learned, or a function"),
        (
            lambda: Dyna(inside=TD3(critic=INSIDE.critic, imitation=Imitation()), world=WORLD),
            "leave out inside.imitation",
        ),
        (lambda: replace(INSIDE.critic, bound=math.inf), "above 0 and finite"),
        (lambda: CEM(elites=0), "elites"),
        (lambda: MPPI(temperature=0.0), "above 0"),
        (lambda: MPPI(hold=0), "hold"),
        (lambda: Planned(world=replace(WORLD, choices=True)), "vectors of reals"),
        (lambda: Planned(world=WORLD, bound=0.0), "largest action"),
        (lambda: recipes.load("mbpo", {"store": Transitions(n=3)}), "store.n=1"),
        (lambda: recipes.load("mbpo", {"store": Once()}), "a buffer"),
        (lambda: recipes.load("pets", {"policy": POLICY}), "has none"),
        (lambda: replace(WORLD, ends=same).load(0).ended(torch.zeros(2, 3), None), "one for each"),
        (lambda: WORLD.load(0).follow(torch.zeros(2, 4), torch.zeros(2, 1, 2)), "world.observations"),
    ],
)
def test_bad_settings_are_refused_in_a_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_choices_are_read_one_hot():
    world = Dynamics(observations=3, actions=4, hidden=(8,), choices=True).load(0)
    assert world.encoded(torch.tensor([[2]])).tolist() == [[0, 0, 1, 0]]
    assert world.follow(torch.zeros(1, 3), torch.tensor([[[2]]])).mean_MNST.shape == (5, 1, 1, 4)


def test_another_environment_gives_worlds_its_sizes():
    run = recipes.load("mbpo", {"tasks.environment": "MountainCarContinuous-v0"})
    world, critic = run.update.world, run.update.inside.critic
    assert (world.observations, world.actions, critic.observations, critic.bound) == (2, 1, 2, 1.0)
    run = recipes.load("pets", {"tasks.environment": "MountainCarContinuous-v0"})
    assert (run.policy.world.observations, run.policy.bound, run.held_out.tasks.source) == (2, 1.0, run.tasks.source)
    with pytest.raises(ValueError, match="which Planned does not sample: start from dqn or cartpole"):
        recipes.load("pets", {"tasks.environment": "CartPole-v1"})
