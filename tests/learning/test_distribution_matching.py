"""Distribution matching: gradients against central differences, Gaussians whose scores are known, and what a checkpoint holds."""

import copy
import math
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_denoising_gradients import D, Linear, close, differences, gradient, moved, policy_of, said, values
from torch import nn

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from diffusers.configuration_utils import FrozenDict

from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.distribution_matching import (
    EPS,
    FAKE,
    PLACE,
    REAL,
    STEP,
    DistributionMatching,
    difference,
    noised,
)
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy
from gimbal.policies.diffusers import LoadedParts, Process
from gimbal.policies.paths import Paths, PathSampling
from gimbal.records import Task, TrainBatch

STEPS, ROWS = 3, 6
FLOW = diffusers.FlowMatchEulerDiscreteScheduler
Said = namedtuple("Said", "sample")


class Gaussian(nn.Module):
    """The exact velocity of the flow from noise to N(mean, exp(log_std)^2 I)."""

    config = FrozenDict(sample_size=2, in_channels=1, num_class_embeds=None)

    def __init__(self, mean, std):
        super().__init__()
        self.mean = nn.Parameter(torch.tensor(float(mean)))
        self.log_std = nn.Parameter(torch.tensor(float(std)).log())

    @property
    def dtype(self):
        return self.mean.dtype

    def forward(self, x, timestep, class_labels=None):
        t, spread = timestep.reshape(-1, 1, 1, 1) / 1000, self.log_std.exp().square()
        z = x - (1 - t) * self.mean
        return Said((t - (1 - t) * spread) * z / ((1 - t) ** 2 * spread + t**2) - self.mean)


def gaussian(mean, std):
    return wrapped(Gaussian(mean, std))


def wrapped(network):
    parts = LoadedParts(network=network, process=Process(FLOW()), place="unet")
    return DenoiserPolicy(parts, guidance=1.0, batch=64, origin=Path())


def generator(mean, std):
    """One step from noise to N(mean, std^2 I): x = z - v(z, 1), v = M z + c."""
    network = Linear(0)
    with torch.no_grad():
        network.m.copy_((1 - std) * torch.eye(D))
        network.c.fill_(-mean)
    return wrapped(network)


def batch_of(policy, seed=0, steps=STEPS, rows=ROWS, **options):
    engine = Denoising(slots=rows).start(policy)
    engine.load(0, policy.weights())
    sampling = PathSampling(**{"max_length": steps, "sampler": "ode", "spacing": "trailing"} | options)
    for sample in range(rows):
        engine.submit(Request(group=0, task=Task(id="t"), sample=sample, sampling=sampling, seed=seed))
    drawn = [finished.rollout for _, finished in sorted(drained(engine).items())]
    return TrainBatch(
        mask_NS=torch.stack([row.mask_S for row in drawn]),
        group_N=torch.zeros(rows, dtype=torch.long),
        decisions=Paths.stack([row.decisions for row in drawn]),
    )


def learner_of(policy, update, **models):
    return Learner(copy.deepcopy(policy), update, first=lambda: copy.deepcopy(policy), **copy.deepcopy(models))


def clean(w, x, t):
    return x - t * said(w, x, t)


@pytest.mark.parametrize(
    "options", [{}, {"sampler": "cps", "noise": 1.0}, {"sampler": "flow_sde"}], ids=["ode", "noised anew", "sde"]
)
def test_both_gradients(options):
    """Of fake's loss by the weights of fake, and of the policy's by its own, where the three models differ."""
    policy = policy_of(0, FLOW())
    fake, real = moved(policy, 0.2), moved(policy, 0.3, seed=6)
    learner = learner_of(policy, DistributionMatching(fake_updates=2), fake=fake, real=real)
    batch = learner.prepare(batch_of(policy, **options))
    facts, decisions = batch.facts, batch.decisions
    assert len(set(facts[STEP].tolist())) > 1 and facts[PLACE.format(2)].min() >= 0.02

    def sample(w, n):
        k = int(facts[STEP][n])
        x = decisions.state_NXD[n, k].flatten().double()
        return clean(w, x, float(decisions.level_NSL[n, k, 1]))

    def noisy(x, n, draw):
        t, eps = float(facts[PLACE.format(draw)][n]), facts[EPS.format(draw)][n].flatten().double()
        return (1 - t) * x + t * eps, t, eps

    w_now, w_real = values(policy), values(real)

    def of_fake(w, draw):
        total = 0.0
        for n in range(ROWS):
            x = sample(w_now, n)
            state, t, eps = noisy(x, n, draw)
            total += ((said(w, state, t) - (eps - x)) ** 2).mean()
        return total / ROWS

    def of_policy(w, w_fake):
        total = 0.0
        for n in range(ROWS):
            fixed = sample(w_now, n)
            state, t, _ = noisy(fixed, n, 2)
            g = (clean(w_fake, state, t) - clean(w_real, state, t)) / (fixed - clean(w_real, state, t)).abs().mean()
            total += 0.5 * ((sample(w, n) - (fixed - g)) ** 2).mean()
        return total / ROWS

    losses = learner.update.losses(learner.models, learner.update.survey(learner.models, batch)[0])
    for draw in range(2):
        loss = next(losses)
        assert loss.of == (FAKE,)
        learner.models[FAKE].zero_grad()
        loss.value.backward()
        w_fake = values(learner.models[FAKE])
        close(gradient(learner.models[FAKE]), differences(lambda w, draw=draw: of_fake(w, draw), w_fake))
        assert all(weight.grad is None for weight in learner.policy.parameters())
        with torch.no_grad():  # the next loss is of the moved fake
            learner.models[FAKE].model.c.add_(0.1)
    loss = next(losses)
    assert loss.of == ("policy",) and next(losses, None) is None
    loss.value.backward()
    w_fake = values(learner.models[FAKE])
    close(gradient(learner.policy), differences(lambda w: of_policy(w, w_fake), w_now))
    assert float(loss.value.detach()) == pytest.approx(float(of_policy(w_now, w_fake)), rel=1e-4)


def of_groups(labels, **options):
    """(weights' gradient of the policy's loss, the batch as prepared) of rows in these groups, at one set of weights of all models."""
    policy = policy_of(0, FLOW())
    fake, real = moved(policy, 0.2), moved(policy, 0.3, seed=6)
    update = DistributionMatching(fake_updates=1, **options)
    learner = learner_of(policy, update, fake=fake, real=real)
    batch = learner.prepare(replace(batch_of(policy), group_N=torch.tensor(labels)))
    *_, loss = learner.update.losses(learner.models, learner.update.survey(learner.models, batch)[0])
    loss.value.backward()
    return gradient(learner.policy), batch, (policy, fake, real)


def test_by_group_a_task_has_one_time_and_one_denominator():
    labels = [0, 1, 0, 1, 1, 0]
    found, batch, (policy, fake, real) = of_groups(labels, by_group=True)
    place_N = batch.facts[PLACE.format(1)]
    assert len(place_N.unique()) == 2 and len(batch.facts[PLACE.format(0)].unique()) == ROWS
    w_fake, w_real, decisions = values(fake), values(real), batch.decisions
    apart, off = [], []
    for n in range(ROWS):
        k = int(batch.facts[STEP][n])
        x = clean(values(policy), decisions.state_NXD[n, k].flatten().double(), float(decisions.level_NSL[n, k, 1]))
        t, eps = float(place_N[n]), batch.facts[EPS.format(1)][n].flatten().double()
        state = (1 - t) * x + t * eps
        apart.append(clean(w_fake, state, t) - clean(w_real, state, t))
        off.append((x - clean(w_real, state, t)).abs().mean())
    means = {group: sum(o for o, label in zip(off, labels, strict=True) if label == group) / 3 for group in (0, 1)}

    def loss(w):
        total = 0.0
        for n, label in enumerate(labels):
            k = int(batch.facts[STEP][n])
            x = decisions.state_NXD[n, k].flatten().double()
            total += (clean(w, x, float(decisions.level_NSL[n, k, 1])) * apart[n] / means[label]).mean()
        return total / ROWS

    close(found, differences(loss, values(policy)))


def test_groups_of_one_are_the_same_as_without():
    labels = list(range(ROWS))
    torch.testing.assert_close(of_groups(labels, by_group=True)[0], of_groups(labels)[0])


def test_fake_equal_to_real_gives_no_gradient():
    policy, both = policy_of(0, FLOW()), moved(policy_of(0, FLOW()), 0.3)
    learner = learner_of(policy, DistributionMatching(fake_updates=1), fake=both, real=both)
    batch = learner.prepare(batch_of(policy))
    *_, loss = learner.update.losses(learner.models, learner.update.survey(learner.models, batch)[0])
    loss.value.backward()
    assert float(loss.value.detach()) == 0 and gradient(learner.policy).abs().max() < 1e-7


@pytest.mark.parametrize("t", [0.2, 0.5, 0.9])
def test_of_gaussians_without_the_denominator_it_is_the_gradient_of_the_kl(t):
    """KL(p_t || q_t) of the noised samples, by central differences in the mean and the deviation of the policy's."""
    (m, s), (m0, s0), rows = (0.5, 0.8), (-0.3, 1.4), 4

    def kl(m, s):
        own, theirs = (1 - t) ** 2 * s**2 + t**2, (1 - t) ** 2 * s0**2 + t**2
        return D * 0.5 * (math.log(theirs / own) + (own + (1 - t) ** 2 * (m - m0) ** 2) / theirs - 1)

    # Scores are linear, so four points with the moments of normal numbers have the exact means of products.
    z_ND, eps_ND = (
        x.reshape(-1, 1, 1, 1).expand(-1, 1, 2, 2) for x in torch.tensor([[1.0, 1, -1, -1], [1, -1, 1, -1]])
    )
    policy, place_N = generator(m, s), torch.full((rows,), t)
    paths = batch_of(policy, steps=1, rows=1).decisions.select(torch.zeros(rows, dtype=torch.long))
    batch = TrainBatch(mask_NS=torch.ones(rows, 1, dtype=torch.bool), decisions=paths)
    batch = batch.with_columns({PLACE.format(0): place_N, EPS.format(0): eps_ND[:, None]})
    with torch.no_grad():
        found = noised(policy, batch, m + s * z_ND, 0)
        apart_ND, _ = difference(found, gaussian(m, s), gaussian(m0, s0))
    factor, h = ((1 - t) / t) ** 2, 1e-4
    by_mean = float(factor * apart_ND.flatten(1).sum(-1).mean())
    by_std = float(factor * (apart_ND * z_ND).flatten(1).sum(-1).mean())
    assert by_mean == pytest.approx((kl(m + h, s) - kl(m - h, s)) / (2 * h), rel=1e-3)
    assert by_std == pytest.approx((kl(m, s + h) - kl(m, s - h)) / (2 * h), rel=1e-3)


@pytest.mark.slow
def test_a_linear_generator_comes_to_the_moments_of_its_teacher():
    rates = Optimization(learning_rate=0.05, critic_learning_rate=0.1, beta1=0.0, decay="linear")
    policy, update = generator(1.0, 0.5), DistributionMatching(optimization=rates)
    models = {FAKE: gaussian(1.0, 0.5), REAL: gaussian(-0.5, 1.5)}
    learner = Learner(policy, update, total_steps=120, **models)
    for step in range(120):
        learner.step(learner.prepare(batch_of(learner.policy, seed=step, steps=1, rows=64)))
    sample_ND = batch_of(learner.policy, seed=-1, steps=1, rows=2000).decisions.sample_ND.flatten(1)
    assert float(sample_ND.mean()) == pytest.approx(-0.5, abs=0.15)
    assert float(sample_ND.std(0).mean()) == pytest.approx(1.5, abs=0.2)
    fake = learner.models[FAKE].model
    mean, std = float(fake.mean.detach()), float(fake.log_std.detach().exp())
    assert mean == pytest.approx(-0.5, abs=0.2) and std == pytest.approx(1.5, abs=0.25)


def test_fake_moves_so_many_times_for_one_move_of_the_policy_and_real_never():
    policy = policy_of(0, FLOW())
    learner = learner_of(policy, DistributionMatching(fake_updates=3))
    for seed in (1, 2):
        metrics = learner.step(learner.prepare(batch_of(learner.policy, seed=seed)))
    states = {name: optimizer.state_dict()["state"] for name, optimizer in learner.models.optimizers.items()}
    assert {name: int(state[0]["step"]) for name, state in states.items()} == {"policy": 2, FAKE: 6}
    assert torch.equal(values(learner.models[REAL]), values(policy))
    assert {"loss", "fake/loss", "grad_norm", "grad_norm/fake", "matching/apart", "matching/off"} <= metrics.keys()


def test_a_checkpoint_holds_fake_and_its_optimiser_and_goes_on_to_the_same_bits():
    def stepped(learner, seeds):
        for seed in seeds:
            learner.step(learner.prepare(batch_of(policy, seed=seed)))
        return learner

    policy = policy_of(0, FLOW())
    update = DistributionMatching(fake_updates=2, optimization=Optimization(minibatches=2))
    whole = stepped(learner_of(policy, update), range(4))
    half = stepped(learner_of(policy, update), range(2))
    state = half.save_state()
    assert set(state["models"]) == {FAKE}, "real is the first policy, and is made again"
    resumed = Learner(copy.deepcopy(half.policy), update, first=lambda: copy.deepcopy(policy))
    resumed.load_state(state)
    stepped(resumed, range(2, 4))
    for name in ("policy", FAKE, REAL):
        assert torch.equal(values(resumed.models[name]), values(whole.models[name])), name


def test_micro_batches_do_not_change_the_step():
    policy = policy_of(0, FLOW())

    def after(tokens):
        rates = Optimization(microbatch_tokens=tokens, beta1=0.0)
        learner = learner_of(policy, DistributionMatching(optimization=rates))
        learner.step(learner.prepare(batch_of(policy)))
        return values(learner.policy), values(learner.models[FAKE])

    for whole, split in zip(after(10_000), after(4), strict=True):
        torch.testing.assert_close(whole, split, atol=1e-5, rtol=1e-4)


def test_what_cannot_be_compared_is_refused_by_name():
    with pytest.raises(ValueError, match="at least 1"):
        DistributionMatching(fake_updates=0)
    policy, other = policy_of(0, FLOW()), policy_of(0, diffusers.DDIMScheduler())
    with pytest.raises(ValueError, match=r"the teacher .* has the scheduler DDIMScheduler"):
        learner_of(policy, DistributionMatching(), real=other).prepare(batch_of(policy))


def test_a_teacher_with_guidance_is_another_model_than_the_first_policy():
    update = DistributionMatching(teacher=Denoiser(guidance=3.0))
    spec = update.models()[REAL]
    assert not spec.first and spec.load is not None and spec.load(0).guidance == 3.0
