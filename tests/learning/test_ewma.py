"""Anchors that keep weights: what they average, when they begin again, and that they survive a checkpoint."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Shallow, small_run

from gimbal.learning.optimization import Optimization
from gimbal.learning.proximal.ewma import Ewma
from gimbal.learning.proximal.recompute import Recompute
from gimbal.objectives import KLPenalty
from gimbal.runtime.local import Trainer


def iterates(count, seed=0):
    """Policies whose weights are a random walk."""
    policy, g = Shallow().load(), torch.Generator().manual_seed(seed)
    for _ in range(count):
        with torch.no_grad():
            for weight in policy.parameters():
                weight += 0.1 * torch.randn(weight.shape, generator=g)
        yield policy


def followed(spec, count, metrics=None):
    """The live anchor after ``count`` iterates, and a tensor of each of them."""
    start = Shallow().load()
    anchor, seen = spec.start(start), [next(iter(start.parameters())).detach().clone()]
    for policy in iterates(count):
        anchor.observe(policy, metrics or {})
        seen.append(next(iter(policy.parameters())).detach().clone())
    return next(iter(anchor.policy.parameters())), seen


def test_it_is_the_bias_corrected_average_of_all_iterates():
    average, seen = followed(Ewma(decay=0.7), 5)
    weights = [0.7 ** (5 - k) for k in range(6)]
    expected = sum(w * x for w, x in zip(weights, seen, strict=True)) / sum(weights)
    torch.testing.assert_close(average, expected, atol=1e-6, rtol=1e-6)


def test_decay_0_is_recompute():
    average, seen = followed(Ewma(decay=0.0), 3)
    assert torch.equal(average, seen[-1])
    runs = [
        Trainer(small_run(anchor=anchor, optimization=Optimization(minibatches=2)))
        for anchor in (Ewma(decay=0.0), Recompute())
    ]
    for _ in range(2):
        first, second = (trainer.advance()[0]["loss"] for trainer in runs)
        assert first == pytest.approx(second, abs=1e-6)


def test_decay_near_1_is_the_mean_of_all_iterates():
    average, seen = followed(Ewma(decay=1 - 1e-9), 4)
    torch.testing.assert_close(average, torch.stack(seen).mean(0), atol=1e-5, rtol=1e-5)


def test_the_window_puts_the_centre_of_mass_in_its_middle():
    rate = Ewma(window=8).rate
    assert rate / (1 - rate) == pytest.approx(4)


def test_the_window_counts_versions_however_many_updates_make_one():
    start = Shallow().load()
    anchor, seen = Ewma(window=2).start(start), [next(iter(start.parameters())).detach().clone()]
    for update, policy in enumerate(iterates(6), start=1):
        anchor.observe(policy, {})
        if update % 3 == 0:
            anchor.publish(policy, update // 3)
            seen.append(next(iter(policy.parameters())).detach().clone())
    expected = (0.25 * seen[0] + 0.5 * seen[1] + seen[2]) / 1.75
    torch.testing.assert_close(next(iter(anchor.policy.parameters())), expected, atol=1e-6, rtol=1e-6)


def test_too_few_live_decisions_begin_anew():
    average, seen = followed(Ewma(decay=0.9, reset_below=0.5), 3, {"live_frac": 0.4, "signal_frac": 1.0})
    assert torch.equal(average, seen[-1])
    kept, _ = followed(Ewma(decay=0.9, reset_below=0.5), 3, {"live_frac": 0.6, "signal_frac": 1.0})
    plain, _ = followed(Ewma(decay=0.9), 3)
    assert torch.equal(kept, plain) and not torch.equal(kept, average)


@pytest.mark.parametrize(("live", "signal"), [(0.1, 0.1), (0.0, 0.0)])
def test_decisions_without_an_advantage_are_not_taken_for_clipped(live, signal):
    kept, _ = followed(Ewma(decay=0.9, reset_below=0.9), 3, {"live_frac": live, "signal_frac": signal})
    plain, _ = followed(Ewma(decay=0.9), 3)
    assert torch.equal(kept, plain)


@pytest.mark.parametrize("within", [1.0, 0.5])
def test_the_activity_is_that_of_all_updates_of_a_version(within):
    start = Shallow().load()
    anchor = Ewma(window=2, reset_below=0.7).start(start)
    for policy, live in zip(iterates(2), (0.9, within - 0.4), strict=True):
        anchor.observe(policy, {"live_frac": live, "signal_frac": 1.0})
    anchor.publish(policy, 1)
    assert (anchor.total == 1.0) == (within == 0.5)


@pytest.mark.slow
def test_a_live_anchor_sees_every_update_and_survives_a_save(tmp_path):
    run = small_run(anchor=Ewma(decay=0.5), optimization=Optimization(learning_rate=1e-2, minibatches=3), steps=4)
    trainer = Trainer(run)
    trainer.advance()
    assert trainer.learner.models.parts["anchor"].total == 1 + 0.5 * (1 + 0.5 * (1 + 0.5))
    saved = trainer.save(tmp_path, {})
    resumed = Trainer(run, saved)
    resumed.begin()
    assert resumed.learner.models.parts["anchor"].total == trainer.learner.models.parts["anchor"].total
    assert [resumed.advance()[0]["loss"] for _ in range(2)] == [trainer.advance()[0]["loss"] for _ in range(2)]


@pytest.mark.parametrize("regularisers", [(), (KLPenalty(),)])
def test_live_frac_counts_decisions_that_get_a_gradient_of_the_objective(regularisers):
    optimization = Optimization(learning_rate=3e-2, minibatches=2)
    trainer = Trainer(small_run(optimization=optimization, regularisers=regularisers))
    metrics, _, _ = trainer.advance()
    clipped = metrics["clip_ratio/low"] + metrics["clip_ratio/high"]
    assert 0 < clipped <= 1 - metrics["live_frac"] + 1e-6 < 1


@pytest.mark.parametrize("bad", [{"decay": 1.0}, {"window": -1}, {"reset_below": 2.0}])
def test_bad_constants_are_refused(bad):
    with pytest.raises(ValueError, match="Ewma"):
        Ewma(**bad)
