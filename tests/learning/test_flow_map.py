"""Flow maps: gradients against central differences, the exact map of a Gaussian, and networks that are told how far a step goes."""

import json
import math
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from test_denoising_gradients import D, close, differences
from torch import nn

from gimbal.cli import main
from gimbal.recipes.papers.denoising.flow_grpo import flow_grpo
from gimbal.runtime import compose

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

from diffusers.configuration_utils import FrozenDict
from test_distribution_matching import FLOW, batch_of, gaussian, learner_of

from gimbal.learning.updates.flow_map import PLACE, STEP, FlowMap, velocity
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy
from gimbal.policies.diffusers import LoadedParts, Process

Said = namedtuple("Said", "sample")
ROWS = 6


class Spanned(nn.Module):
    """u = M x + t c + span d."""

    config = FrozenDict(sample_size=2, in_channels=2, out_channels=1, num_class_embeds=None)

    def __init__(self, seed):
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.w = nn.Parameter(0.4 * torch.randn(D * D + 2 * D, generator=g))

    @property
    def dtype(self):
        return self.w.dtype

    def forward(self, x, timestep, class_labels=None):
        found = said(self.w, x[:, 0].flatten(1), timestep[:, None] / 1000, x[:, 1, 0, 0, None])
        return Said(found.reshape(-1, 1, 2, 2))


class Map(nn.Module):
    """The exact mean velocity between any two noises of the flow to N(mean, std^2 I): x - mean' scales as the deviation does."""

    config = Spanned.config

    def __init__(self, mean, std):
        super().__init__()
        self.mean, self.spread = nn.Parameter(torch.tensor(float(mean))), std**2

    @property
    def dtype(self):
        return self.mean.dtype

    def forward(self, x, timestep, class_labels=None):
        span, t, m = x[:, 1:, :1, :1], timestep.reshape(-1, 1, 1, 1) / 1000, self.mean
        r = t - span
        way = ((1 - r) ** 2 * self.spread + r**2).sqrt() / ((1 - t) ** 2 * self.spread + t**2).sqrt()
        there = (1 - r) * m + way * (x[:, :1] - (1 - t) * m)
        here = gaussian(float(m.detach()), math.sqrt(self.spread)).model(x[:, :1], timestep).sample
        return Said(torch.where(span > 0, (x[:, :1] - there) / span.where(span > 0, 1), here))


def said(w, x, t, span):
    return x @ w[: D * D].reshape(D, D).T + t * w[D * D : -D] + span * w[-D:]


def wrapped(network):
    parts = LoadedParts(network=network, process=Process(FLOW()), place="unet")
    return DenoiserPolicy(parts, guidance=1.0, batch=64, origin=Path())


def values(policy):
    return policy.model.w.detach().double()


@pytest.mark.parametrize("walker", ["policy", "teacher"])
def test_the_gradient_where_policy_and_teacher_differ(walker):
    policy, teacher = wrapped(Spanned(0)), wrapped(Spanned(1))
    assert policy.jumps and policy.sample_shape == (1, 2, 2)
    update = FlowMap(walker=walker, draws=5, grid=4, teacher_steps=3)
    learner = learner_of(policy, update, teacher=teacher)
    batch = learner.prepare(batch_of(policy, steps=2))
    metrics, (decisions, facts) = learner.forward_backward(batch), (batch.decisions, batch.facts)
    now, taught, kinds = values(policy), values(teacher), set()

    def jump(w, x, t, r):
        return x - (t - r) * said(w, x, t, t - r)

    def loss(w):
        total = 0.0
        for n in range(ROWS):
            for draw in range(5):
                k, (first, kind, share) = int(facts[STEP][n, draw]), facts[PLACE][n, draw].double().tolist()
                level = decisions.level_NSL[n, k].double().tolist()
                t = level[1] + first * (level[3] - level[1])
                r = t if kind < 0.25 else t * share if kind < 0.75 else 0.0
                kinds.add("same" if r == t else "end" if r == 0 else "short" if t - r < 1 / 4 else "long")
                if walker == "policy":
                    x = jump(now, decisions.state_NXD[n, k].flatten().double(), level[1], t)
                else:
                    x, here = decisions.state_NXD[n, 0].flatten().double(), 1.0
                    for left in (3, 2, 1):
                        after = here + (t - here) / left
                        x, here = x - (here - after) * said(taught, x, here, 0.0), after
                wanted = said(taught, x, t, 0.0)
                if t > r:
                    h = min(t - r, 1 / 4)
                    rest = said(now, x - h * wanted, t - h, t - h - r)
                    wanted = (h * wanted + (t - h - r) * rest) / (t - r)
                total += ((said(w, x, t, t - r) - wanted) ** 2).mean()
        return total / (5 * ROWS)

    value = float(loss(now))
    assert {"same", "end", "long"} <= kinds
    close(torch.cat([p.grad.flatten() for p in learner.policy.parameters()]).double(), differences(loss, now))
    assert metrics["loss"] == pytest.approx(value, rel=1e-4)


def wanted(update, policy, teacher, t, r, x_JD):
    from_J, to_J = torch.full((len(x_JD),), t), torch.full((len(x_JD),), r)
    with torch.no_grad():
        found_JD = update.wanted(policy, teacher, x_JD, from_J, to_J, torch.zeros(len(x_JD), dtype=torch.long))
    return found_JD, velocity(policy, x_JD, from_J, to_J, torch.zeros(len(x_JD), dtype=torch.long)).detach()


def noise(rows=50):
    return torch.randn(rows, 1, 2, 2, generator=torch.Generator().manual_seed(0))


def test_of_a_span_up_to_a_step_of_the_grid_it_is_a_step_of_the_teacher():
    policy, teacher, x_JD = wrapped(Spanned(0)), wrapped(Spanned(1)), noise()
    for t, r in ((0.7, 0.7), (0.7, 0.575)):
        found_JD, _ = wanted(FlowMap(grid=8), policy, teacher, t, r, x_JD)
        same = torch.full((50,), t)
        taught_JD = velocity(teacher, x_JD, same, same, torch.zeros(50, dtype=torch.long))
        torch.testing.assert_close(found_JD, taught_JD.detach(), atol=1e-5, rtol=1e-5)


def test_of_a_flow_whose_ways_are_straight_nothing_changes():
    straight = Spanned(0)
    with torch.no_grad():
        straight.w[: D * D + D] = 0
        straight.w[-D:] = 0
    point, x_JD = wrapped(straight), noise()
    found_JD, own_JD = wanted(FlowMap(grid=8), point, point, 0.9, 0.0, x_JD)
    torch.testing.assert_close(found_JD, own_JD)


def test_the_exact_map_of_a_gaussian_is_wanted_again_up_to_the_first_step_of_the_teacher():
    """The error is that of an Euler step of 1 / grid, which falls with the square."""
    exact, x_JD, errors = wrapped(Map(0.5, 0.6)), noise(), []
    for grid in (8, 32):
        found_JD, own_JD = wanted(FlowMap(grid=grid), exact, gaussian(0.5, 0.6), 0.9, 0.1, x_JD)
        errors.append(float((found_JD - own_JD).abs().mean()))
    assert errors[1] < 0.02 and 10 < errors[0] / errors[1] < 24, errors


def test_a_model_is_told_the_span_of_its_steps_and_samples_as_before_until_it_learns(tmp_path):
    plain, told = Denoiser(batch=8).load(), Denoiser(batch=8, jumps=True).load()
    assert told.jumps and not plain.jumps and told.sample_shape == plain.sample_shape
    one, other = (batch_of(policy, steps=3).decisions.sample_ND for policy in (plain, told))
    torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        told.model.pos_embed.proj.weight[:32, 1] = 0.3  # equal ones are lost in the norm behind it
    moved = batch_of(told, steps=3).decisions.sample_ND
    assert (moved - one).abs().max() > 0.01
    told.save(tmp_path)
    again = Denoiser(model=str(tmp_path), batch=8).load()
    assert again.jumps and torch.equal(batch_of(again, steps=3).decisions.sample_ND, moved)
    x_KD, time_K, label_K = torch.randn(2, 1, 8, 8), torch.full((2,), 500.0), torch.zeros(2, dtype=torch.long)
    with torch.no_grad():
        torch.testing.assert_close(told.found(x_KD, time_K, label_K), plain.found(x_KD, time_K, label_K))


def test_what_cannot_be_a_map_is_refused_by_name():
    for wrong, name in (({"draws": 0}, "draws is 0"), ({"grid": 0}, "grid 0")):
        with pytest.raises(ValueError, match=name):
            FlowMap(**wrong)
    with pytest.raises(
        ValueError, match=r"policy.jumps=true is for flows, and gimbal-digits-ddim has the scheduler DDIM"
    ):
        Denoiser(model="gimbal-digits-ddim", jumps=True).load()
    policy, other = wrapped(Spanned(0)), wrapped(Spanned(1))
    other.process = Process(diffusers.DDIMScheduler())
    with pytest.raises(ValueError, match=r"the teacher .* has the scheduler DDIMScheduler"):
        learner_of(policy, FlowMap(), teacher=other).prepare(batch_of(policy))


def test_a_model_that_was_saved_with_jumps_is_asked_where_its_steps_end(tmp_path):
    Denoiser(jumps=True).load().save(tmp_path / "model")
    run = replace(flow_grpo(), policy=Denoiser(model=str(tmp_path / "model")))
    with pytest.raises(
        ValueError, match=r"set sampling.sampler=ode, or a model other than .*model, which was saved with it"
    ):
        compose.check(run)


def test_the_nearest_model_is_kept_as_it_is_typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["train", "any_flow", "steps=3", "prompts_per_step=1", "learning_rate=1e-4"]
    words += ["held_out.every=1", "held_out.tasks.size=32"]
    assert main([*words, "held_out.save_best=data/distance", "--name", "near"]) == 0
    rows = [json.loads(line) for line in Path("runs/near/metrics.jsonl").read_text().splitlines()]
    found = [row["eval/data/distance"] for row in rows]
    before = json.loads(Path("runs/near/summary.json").read_text())["before"]["eval/data/distance"]
    kept = Path("runs/near/best/evaluation.json")
    assert kept.exists() == (min(found) < before), "the model that it began with competes, and is not saved again"
    if kept.exists():
        assert json.loads(kept.read_text())["value"] == min(found)
    assert main([*words, "held_out.save_best=data/nearness"]) == 2
    assert "has no such metric" in capsys.readouterr().err
