"""The plain loop of benchmarks/denoising.py has the gradient of gimbal's recipes on the same paths, so that both do the same work."""

import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import denoising

from gimbal import recipes
from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.objectives.regularisers.step_kl import StepKL
from gimbal.policies.paths import Paths
from gimbal.records import Task, TrainBatch

ROWS = 8


@pytest.mark.parametrize("name", denoising.CASES)
def test_on_the_same_paths_the_gradients_are_the_same(name):
    case, run = denoising.CASES[name], recipes.function(name)()
    loop = denoising.Plain(case, seed=0)
    policy, reference = run.policy.load(0), run.policy.load(0)
    engine = Denoising(slots=ROWS).start(policy)
    engine.load(0, policy.weights())
    for sample in range(ROWS):
        engine.submit(Request(group=0, task=Task(id="t"), sample=sample, sampling=run.sampling, seed=0))
    rollouts = [finished.rollout for _, finished in sorted(drained(engine).items())]
    paths = Paths.stack([rollout.decisions for rollout in rollouts])
    behavior_NS, advantage_N = torch.stack([rollout.behavior_S for rollout in rollouts]), torch.linspace(-2, 2, ROWS)
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():  # away from where ratios are 1 and the KL is 0, the same way for both
        for own, other in zip(policy.model.parameters(), loop.network.parameters(), strict=True):
            own.add_(0.01 * own.abs().mean() * torch.randn(own.shape, generator=g))
            other.copy_(own)
    needs = ("mean_NSD", "std_NS", "scale_NS")
    found, held = policy.evaluate(paths, columns=needs), reference.evaluate(paths, columns=("mean_NSD",))
    batch = TrainBatch(
        mask_NS=paths.drawn_NS,
        proximal_NS=behavior_NS,
        advantage_NS=advantage_N[:, None] * paths.drawn_NS,
        facts={"reference/mean_NSD": held.columns["mean_NSD"].detach(), **found.columns},
        live=frozenset({"mean_NSD"}),
    )
    assert int(paths.drawn_NS[0].sum()) == case.drawn
    assert case.kl == sum(part.coef for part in run.regularisers if isinstance(part, StepKL))
    terms = [part(found.logprob_NS, batch) for part in (run.objective, *run.regularisers)]
    clipped = terms[0].metrics["clip_ratio/low"] + terms[0].metrics["clip_ratio/high"]
    assert clipped.any()
    sum(part.loss_NS for part in terms)[batch.mask_NS].mean().backward()
    for place in range(case.drawn):
        x, after = (paths.state_NXD[:, at] for at in (place, place + 1))
        (loop.loss(place, x, after, behavior_NS[:, place], advantage_N) / case.drawn).backward()
    pairs = zip(policy.model.parameters(), loop.network.parameters(), strict=True)
    ours, theirs = (
        torch.cat([w.grad.flatten() for w in side if w.grad is not None]) for side in zip(*pairs, strict=True)
    )
    torch.testing.assert_close(theirs, ours, atol=1e-5 * float(ours.abs().max()), rtol=2e-3)
    assert float(ours.abs().max()) > 0
