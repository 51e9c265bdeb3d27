"""Losses of a forward process, on (x0, t, noise), as updates of their own: flow matching, and its contrastive form for rewards.

x_t = (1 - t) x0 + t eps, eps ~ N(0, I), t ~ U(0, 1); the velocity to be learned is v* = eps - x0. Sampling goes from t = 1 to 0.
Bars, stated before anything was trained: the energy distance of 2,000 samples to 2,000 fresh data is below 0.02 (two sets of data are
about 0.000 apart, an untrained flow and data 0.75), and each of the four modes holds between 15 % and 35 % of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from gimbal.learning.learner import Learner
from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.base import AbstractUpdate, Loss, Models, ModelSpec
from gimbal.policies.base import AbstractPolicy
from gimbal.records import AbstractDecisions, TrainBatch

MODES_4D = 2.0 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])


@dataclass(frozen=True, kw_only=True)
class Points(AbstractDecisions):
    """Finished samples: one decision a row, the point itself. No path to it is recorded, for the loss makes its own."""

    x_NSD: Tensor

    @property
    def shape(self):
        return tuple(self.x_NSD.shape[:2])

    @property
    def cost_N(self):
        return torch.ones(len(self.x_NSD), dtype=torch.long)

    def select(self, rows):
        return Points(x_NSD=self.x_NSD[rows])

    @classmethod
    def stack(cls, items):
        return Points(x_NSD=torch.cat([item.x_NSD for item in items]))

    def to(self, device):
        return Points(x_NSD=self.x_NSD.to(device))


class Velocity(AbstractPolicy):
    """v(x, t), and samples by Euler steps."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.net = nn.Sequential(nn.Linear(5, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))

    def forward(self, x_KD: Tensor, t_K: Tensor) -> Tensor:
        t_K3 = torch.stack([t_K, (3.14159 * t_K).sin(), (3.14159 * t_K).cos()], -1)
        return self.net(torch.cat([x_KD, t_K3.to(x_KD.dtype)], -1))

    @torch.no_grad()
    def sample(self, count: int, steps: int = 40, seed: int = 0) -> Tensor:
        x_KD = torch.randn(count, 2, generator=torch.Generator().manual_seed(seed))
        for step in range(steps):
            x_KD = x_KD - self(x_KD, torch.full((count,), 1 - step / steps)) / steps
        return x_KD

    def evaluate(self, decisions, *, temperature=1.0, columns=(), checkpointing=False):
        raise ValueError("a point's log-probability under a flow is not asked for here: its losses need none")

    def pieces(self, decisions):
        return [str(point.tolist()) for point in decisions.x_NSD[0]]

    def save(self, directory):
        raise NotImplementedError


def noised(models: Models, batch: TrainBatch) -> TrainBatch:
    """The batch with times and noise, drawn for all of it at once, so that they do not depend on how it is cut up."""
    generator, (n, s) = models.random("forward process"), batch.shape
    t_NS = torch.from_numpy(generator.random((n, s), dtype="float32"))
    eps_NSD = torch.from_numpy(generator.standard_normal((n, s, 2), dtype="float32"))
    return batch.with_columns({"t": t_NS, "eps": eps_NSD})


def at_time(batch: TrainBatch) -> tuple[Tensor, Tensor, Tensor]:
    """(x_t, t, v*) of every point."""
    x_KD, t_K, eps_KD = batch.decisions.x_NSD[:, 0], batch.facts["t"][:, 0], batch.facts["eps"][:, 0]
    return (1 - t_K[:, None]) * x_KD + t_K[:, None] * eps_KD, t_K, eps_KD - x_KD


@dataclass(frozen=True, kw_only=True)
class FlowMatching(AbstractUpdate):
    """sum w |v(x_t, t) - v*|^2 (arXiv:2210.02747); ``average`` is an exponential average of the weights, by which one samples."""

    rate: float = 0.02

    def models(self) -> dict[str, ModelSpec]:
        own = self.optimization.adamw(self.optimization.learning_rate)
        return {"policy": ModelSpec(optimizer=own), "average": ModelSpec(follows="policy", rate=self.rate)}

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, dict[str, float]]:
        return noised(models, batch), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        x_KD, t_K, v_KD = at_time(batch)
        loss_K = (models.policy(x_KD, t_K) - v_KD).square().sum(-1)
        loss = (batch.facts["weight"][:, 0] * loss_K).sum()
        yield Loss(of=("policy",), value=loss, metrics={"loss": float(loss.detach())})


@dataclass(frozen=True, kw_only=True)
class Contrastive(AbstractUpdate):
    """Towards good samples, away from bad ones (DiffusionNFT, arXiv:2509.16117), r in [0, 1] being how good one is:

    sum w (r |v+ - v*|^2 + (1 - r) |v- - v*|^2),  v+ = (1 - b) v_old + b v,  v- = (1 + b) v_old - b v,  v_old the weights that sampled.
    """

    b: float = 0.5

    def models(self) -> dict[str, ModelSpec]:
        own = self.optimization.adamw(self.optimization.learning_rate)
        return {"policy": ModelSpec(optimizer=own), "old": ModelSpec(follows="policy", rate=0.1)}

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, dict[str, float]]:
        return noised(models, batch), {}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        x_KD, t_K, v_KD = at_time(batch)
        r_K, now_KD, old_KD = batch.facts["good"], models.policy(x_KD, t_K), models["old"](x_KD, t_K).detach()
        up_K = ((1 - self.b) * old_KD + self.b * now_KD - v_KD).square().sum(-1)
        down_K = ((1 + self.b) * old_KD - self.b * now_KD - v_KD).square().sum(-1)
        yield Loss(of=("policy",), value=(batch.facts["weight"][:, 0] * (r_K * up_K + (1 - r_K) * down_K)).sum())


def data(count: int, seed: int) -> Tensor:
    """A mixture of four narrow Gaussians at the corners of a square."""
    g = torch.Generator().manual_seed(seed)
    return MODES_4D[torch.randint(4, (count,), generator=g)] + 0.3 * torch.randn(count, 2, generator=g)


def batch_of(x_KD: Tensor, **facts: Tensor) -> TrainBatch:
    mask_NS = torch.ones(len(x_KD), 1, dtype=torch.bool)
    return TrainBatch(mask_NS=mask_NS, facts=facts, decisions=Points(x_NSD=x_KD[:, None]))


def energy_distance(x_KD: Tensor, y_KD: Tensor) -> float:
    """2 E|X - Y| - E|X - X'| - E|Y - Y'|, 0 for equal distributions."""
    k = len(x_KD)
    within = sum(float(torch.cdist(z, z).sum()) / (k * (k - 1)) for z in (x_KD, y_KD))
    return 2 * float(torch.cdist(x_KD, y_KD).mean()) - within


def shares(x_KD: Tensor) -> list[float]:
    """Of the points, by the mode they are nearest to."""
    return (torch.cdist(x_KD, MODES_4D).argmin(-1).bincount(minlength=4) / len(x_KD)).tolist()


@pytest.mark.slow
def test_samples_of_a_trained_flow_are_like_the_data():
    steps, minibatches, size = 4, 250, 256
    optimization = Optimization(learning_rate=3e-3, minibatches=minibatches, decay="cosine")
    learner = Learner(Velocity(), FlowMatching(optimization=optimization), total_steps=steps)
    fresh = data(2000, seed=99)
    before = energy_distance(learner.models["average"].sample(2000), fresh)
    losses = [learner.step(learner.prepare(batch_of(data(minibatches * size, seed))))["loss"] for seed in range(steps)]
    drawn = learner.models["average"].sample(2000)
    assert energy_distance(data(2000, seed=98), fresh) < 0.005 and before > 0.2, "the measure tells them apart"
    assert losses[-1] < losses[0]
    assert energy_distance(drawn, fresh) < 0.02
    assert all(0.15 < share < 0.35 for share in shares(drawn))


def gradient_of(learner: Learner, batch: TrainBatch) -> list[Tensor]:
    learner.forward_backward(batch)
    found = [weight.grad.clone() for weight in learner.policy.parameters()]
    learner.policy.zero_grad()
    return found


def test_the_gradient_of_flow_matching_is_that_of_the_plain_mean():
    learner = Learner(Velocity(), FlowMatching())
    batch = learner.prepare(batch_of(data(20, 0)))
    plain, total = copy.deepcopy(learner.policy), torch.zeros(())
    for n in range(20):
        t, eps, x = batch.facts["t"][n, 0], batch.facts["eps"][n, 0], batch.decisions.x_NSD[n, 0]
        found = plain((x + t * (eps - x))[None], t[None])[0]
        total = total + (found - (eps - x)).pow(2).sum() / 20
    total.backward()
    torch.testing.assert_close(gradient_of(learner, batch), [w.grad for w in plain.parameters()], atol=1e-5, rtol=1e-4)


def test_the_average_follows_and_noise_is_anew_each_step():
    learner = Learner(Velocity(), FlowMatching(rate=1.0, optimization=Optimization(minibatches=2)))
    points = batch_of(data(8, 0))
    first = learner.prepare(points).facts["eps"]
    learner.step(learner.prepare(points))
    pairs = zip(learner.models["average"].parameters(), learner.policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs), "at rate 1 it is the policy"
    assert not torch.equal(learner.prepare(points).facts["eps"], first)


def test_the_contrastive_form_is_weighted_flow_matching_where_old_and_new_are_one():
    """At theta = theta_old the gradient is b times that of sum w (2 r - 1) |v - v*|^2; at r = 1/2 everywhere it is 0."""
    g = torch.Generator().manual_seed(1)
    good = torch.rand(20, generator=g)
    learner = Learner(Velocity(), Contrastive(b=0.5))
    batch = learner.prepare(batch_of(data(20, 0), good=good))
    plain = copy.deepcopy(learner.policy)
    x_KD, t_K, v_KD = at_time(batch)
    (0.5 * ((2 * good - 1) * (plain(x_KD, t_K) - v_KD).square().sum(-1)).mean()).backward()
    ours = gradient_of(learner, batch)
    # Both terms of the loss have it: r b (v - v*) from the one, -(1 - r) b (v - v*) from the other.
    torch.testing.assert_close(ours, [w.grad for w in plain.parameters()], atol=1e-5, rtol=1e-3)
    even = gradient_of(learner, batch.with_columns({"good": torch.full((20,), 0.5)}))
    assert max(float(x.abs().max()) for x in even) < 1e-6
    assert all(w.grad is None for w in learner.models["old"].parameters())


def test_the_contrastive_form_at_r_1_and_b_1_is_flow_matching():
    both = []
    for update in (Contrastive(b=1.0), FlowMatching()):
        learner = Learner(Velocity(), update, seed=0)
        both.append(gradient_of(learner, learner.prepare(batch_of(data(20, 0), good=torch.ones(20)))))
    torch.testing.assert_close(*both, atol=1e-6, rtol=1e-5)


@pytest.mark.slow
def test_the_contrastive_form_learns_what_is_rewarded():
    """Trained on data of four modes of which one is good: it draws that one more often, and the others less."""
    optimization = Optimization(learning_rate=3e-3, minibatches=250, decay="cosine")
    flow = Learner(Velocity(), FlowMatching(optimization=optimization), total_steps=2)
    for seed in range(2):
        flow.step(flow.prepare(batch_of(data(250 * 128, seed))))
    learner = Learner(
        copy.deepcopy(flow.policy), Contrastive(b=1.0, optimization=Optimization(learning_rate=3e-4, minibatches=40))
    )
    before = shares(learner.policy.sample(1000))[0]
    for seed in range(4):
        drawn = learner.models["old"].sample(40 * 64, steps=10, seed=seed)
        good = (torch.cdist(drawn, MODES_4D).argmin(-1) == 0).float()
        learner.step(learner.prepare(batch_of(drawn, good=good)))
    assert shares(learner.policy.sample(1000))[0] > before + 0.2
