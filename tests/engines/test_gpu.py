"""What runs on a GPU: its results beside those of the CPU. Skipped where there is none, as in CI."""

from dataclasses import replace

import pytest
import torch

from gimbal import recipes
from gimbal.cli import main
from gimbal.engines.base import Request, drained
from gimbal.engines.graphs import rounded
from gimbal.engines.native import Native
from gimbal.learning.base import trained
from gimbal.policies.liger import fuse
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.demo import demo
from gimbal.records import Task
from gimbal.runtime.devices import Devices
from gimbal.runtime.local import Trainer

ON_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def test_shapes_are_rounded_to_few_and_hold_what_they_must():
    for slots, capacity in ((100, 1024), (7, 80)):
        shapes = {
            (n, e): rounded(n, e, slots, capacity) for n in range(1, slots + 1) for e in range(16, capacity + 1, 16)
        }
        assert all(n <= rows <= min(slots, 2 * n) for (n, _), (rows, _) in shapes.items())
        assert all(e <= extent <= min(capacity, max(1.25 * e, e + 16)) for (_, e), (_, extent) in shapes.items())
        assert len(set(shapes.values())) <= 8 * 20


def sampled(policy, **settings):
    """40 rollouts of various lengths in 24 rows: rows start, end and move."""
    engine = Native(slots=24, precision="float32", **settings).start(policy)
    engine.load(0, policy.weights())
    for index in range(40):
        sampling = Sampling(max_length=5 + 7 * index % 60)
        task = Task(id=str(index), prompt=f"{index} + {7 * index} =\n")
        engine.submit(Request(group=index, task=task, sample=0, sampling=sampling, seed=0))
    return {key: finished.rollout for key, finished in drained(engine).items()}


def evaluated_as(policy, rollouts):
    """Whether the trainer on the GPU finds what their sampler said."""
    for rollout in rollouts:
        with torch.no_grad():
            found_S = trained(policy).logprobs(rollout.decisions.to(torch.device("cuda")), 1.0)[0].cpu()
        torch.testing.assert_close(rollout.behavior_S, found_S, atol=2e-3, rtol=0)


@ON_GPU
def test_replayed_passes_sample_what_others_do_and_the_trainer_agrees():
    policy = CausalLM().load().to("cuda")
    replayed, plain = sampled(policy), sampled(policy, graphs=False)
    same = [key for key in plain if plain[key].text == replayed[key].text]
    assert len(same) >= 36  # rounding may choose between two tokens
    evaluated_as(policy, replayed.values())


@ON_GPU
def test_the_gpu_samples_and_evaluates_as_the_cpu():
    there, here = CausalLM().load().to("cuda"), CausalLM().load()
    far, near = sampled(there), sampled(here)
    assert sum(far[key].text == near[key].text for key in near) >= 36
    evaluated_as(there, near.values())


@ON_GPU
def test_fused_kernels_give_the_same_log_probabilities_and_gradients():
    pytest.importorskip("liger_kernel")
    plain, fused = CausalLM().load().to("cuda"), CausalLM().load().to("cuda")
    rollouts = list(sampled(plain).values())[:8]
    fuse(fused.model)
    for rollout in rollouts:
        decisions = rollout.decisions.to(torch.device("cuda"))
        found = [policy.evaluate(decisions).logprob_NS[0] for policy in (plain, fused)]
        torch.testing.assert_close(found[1], found[0], atol=2e-3, rtol=0)
        for logprob_S in found:
            logprob_S.sum().backward()
    for (name, one), other in zip(plain.named_parameters(), fused.parameters(), strict=True):
        torch.testing.assert_close(other.grad, one.grad, atol=2e-2 * float(one.grad.abs().max()), rtol=0, msg=name)


@ON_GPU
@pytest.mark.parametrize("name", ["flow_grpo", "ddpo", "lightning_rl", "sac", "cartpole"])
def test_other_families_learn_on_a_gpu_what_they_learn_on_a_cpu(name, monkeypatch):
    """The same run on both: its first rewards agree, and so do the sampler and the trainer."""
    if name in recipes.of("denoising"):
        pytest.importorskip("diffusers")
    found = []
    for there in (True, False):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        trainer = Trainer(replace(recipes.function(name)(), steps=2, held_out=None))
        try:
            assert trainer.device.type == ("cuda" if there else "cpu")
            trainer.begin()
            found.append(trainer.advance()[0])
        finally:
            trainer.close()
    assert found[0]["reward/mean"] == pytest.approx(found[1]["reward/mean"], rel=0.05, abs=0.05)
    assert found[0].get("mismatch/logp_diff_max", 0) < found[1].get("mismatch/logp_diff_max", 0) + 2e-2


@ON_GPU
def test_a_sampler_in_turns_draws_what_one_that_stays_does():
    rewards = []
    for devices in (None, Devices(turns=True)):
        run = replace(demo(), steps=2, max_staleness=0, devices=devices, held_out=None)
        trainer = Trainer(run)
        try:
            rewards.append([trainer.advance()[0]["reward/mean"] for _ in range(2)])
        finally:
            trainer.close()
    assert rewards[0] == pytest.approx(rewards[1], abs=0.05)


@pytest.mark.skipif(torch.cuda.is_available(), reason="what is said where there is no GPU")
def test_kernels_that_need_a_gpu_are_refused_as_they_are_typed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "demo", "policy.use_liger_kernel=true", "engine.graphs=false", "--dry-run"]) == 2
    assert "policy.use_liger_kernel computes with Triton's kernels, which need a GPU" in capsys.readouterr().err
    assert main(["train", "demo", "engine.graphs=false", "--dry-run"]) == 0
