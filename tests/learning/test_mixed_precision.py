"""float32 weights, computed in bfloat16: what a step moves, what is delivered, saved and resumed."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import small_run

from gimbal import recipes
from gimbal.learning.optimization import Optimization
from gimbal.policies.lora import LoRA
from gimbal.policies.token import CausalLM
from gimbal.report.files import deterministic
from gimbal.runtime.local import Trainer

MIXED = CausalLM(mixed_precision="bf16")


def trainer(policy, **changes):
    torch.set_num_threads(1)
    return Trainer(small_run(policy=policy, optimization=Optimization(learning_rate=1e-6), **changes))


def changed(policy):
    """The share of the weights that one step at a learning rate of 1e-6 changes."""
    run = trainer(policy)
    before = {name: x.detach().clone() for name, x in run.policy.named_parameters()}
    metrics = run.advance()[0]
    assert metrics["grad_norm"] > 0
    after = dict(run.policy.named_parameters())
    counts = [int((after[name] != old).sum()) for name, old in before.items()]
    return sum(counts) / sum(x.numel() for x in before.values())


@pytest.mark.slow
def test_at_a_learning_rate_of_1e_6_as_many_weights_change_as_in_float32():
    exact, mixed, coarse = (changed(policy) for policy in (CausalLM(), MIXED, CausalLM(dtype="bfloat16")))
    assert exact > 0.9 and mixed == pytest.approx(exact, abs=0.002)
    assert coarse < 0.1  # most are farther from their neighbours than an update goes


def test_the_passes_are_in_bfloat16_and_weights_gradients_and_moments_in_float32():
    run, plain = trainer(MIXED), trainer(CausalLM())
    run.begin()
    groups, _ = run.pipeline.next_batch(0)
    from gimbal.dataflow.packing import pack

    batch = pack(groups)
    seen = set()
    block = run.policy.model.model.layers[0].mlp.down_proj
    block.register_forward_hook(lambda module, given, out: seen.add(out.dtype))
    ours, theirs = (one.learner.prepare(batch) for one in (run, plain))
    assert seen == {torch.bfloat16}
    apart = (ours.proximal_NS - theirs.proximal_NS).abs()
    assert ours.proximal_NS.dtype == torch.float32 and 1e-4 < float(apart.max()) < 0.2
    run.learner.forward_backward(ours)
    assert {w.grad.dtype for w in run.policy.parameters() if w.grad is not None} == {torch.float32}
    run.learner.optim_step()
    states = run.learner.models.optimizers["policy"].state.values()
    assert {state[name].dtype for state in states for name in ("exp_avg", "exp_avg_sq")} == {torch.float32}
    assert {w.dtype for w in run.policy.parameters()} == {torch.float32}


def test_with_lora_what_is_frozen_is_held_in_bfloat16_and_the_adapter_in_float32():
    run = trainer(CausalLM(mixed_precision="bf16", lora=LoRA(rank=2)))
    held = {(w.requires_grad, w.dtype) for w in run.policy.parameters()}
    assert held == {(True, torch.float32), (False, torch.bfloat16)}
    before = {name: x.clone() for name, x in run.policy.weights().items()}
    run.advance()
    moved = {name: not torch.equal(x, before[name]) for name, x in run.policy.weights().items()}
    assert all(moved[name] for name in moved if ".lora_B." in name)


@pytest.mark.parametrize("lora", [None, LoRA(rank=2)])
def test_a_resumed_run_goes_on_bit_for_bit(tmp_path, lora):
    policy = CausalLM(mixed_precision="bf16", lora=lora)
    first = trainer(policy)
    first.advance()
    saved = first.save(tmp_path, {})
    again = Trainer(first.run, saved)
    ours, theirs = (deterministic(one.advance()[0]) for one in (first, again))
    assert ours == theirs and ours["grad_norm"] > 0
    pairs = zip(first.policy.state_dict().values(), again.policy.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) and a.dtype == b.dtype for a, b in pairs)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="leave one of them"):
        CausalLM(mixed_precision="bf16", dtype="bfloat16")
    with pytest.raises(ValueError, match=r"policy\.mixed_precision=bf16 computes in bfloat16"):
        recipes.load("grpo", {"bf16": "true"})
