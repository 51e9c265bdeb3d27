"""The gradient step on a real model: splits, refusals, schedules, chunks."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import Shallow, small_run

from gimbal.engines.base import Witness
from gimbal.engines.native import Native, NativeEngine
from gimbal.learning.learner import Learner, NotFinite
from gimbal.learning.optimization import Optimization
from gimbal.learning.ranks import SingleProcess
from gimbal.learning.weight_sync.proof import DeliveryProof, NotDelivered
from gimbal.objectives import EntropyBonus, KLPenalty
from gimbal.objectives.surrogates.balanced_clip import BalancedClip
from gimbal.policies import logits
from gimbal.runtime.local import Trainer


@pytest.fixture(scope="module")
def batch():
    trainer = Trainer(small_run(prompts_per_step=3))
    trainer.begin()
    groups, _ = trainer.pipeline.next_batch(0)
    from gimbal.dataflow.packing import pack

    return pack(groups)


def learner(**optimization):
    run = small_run(optimization=Optimization(**optimization), regularisers=(EntropyBonus(), KLPenalty(estimator="k2")))
    return Learner(Shallow().load().double(), run, reference=Shallow().load().double(), total_steps=10)


def gradients(tokens, batch, **optimization):
    learns = learner(microbatch_tokens=tokens, **optimization)
    metrics = learns.forward_backward(learns.prepare(batch))
    return metrics, [p.grad for p in learns.policy.parameters()]


def test_micro_batches_give_the_gradient_of_the_whole(batch):
    metrics, whole = gradients(10**6, batch)
    for tokens in (1, 150, 400):
        split_metrics, split = gradients(tokens, batch)
        for a, b in zip(whole, split, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=0)
        assert split_metrics == pytest.approx(metrics, abs=1e-5)


def test_activation_checkpointing_changes_nothing(batch):
    for a, b in zip(gradients(10**6, batch)[1], gradients(10**6, batch, checkpointing=True)[1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=0)


def test_chunked_log_probabilities_are_the_unchunked(batch, monkeypatch):
    whole = gradients(10**6, batch)
    monkeypatch.setattr(logits, "rows", lambda weight: 7)  # tokens whose logits are held at a time
    chunked = gradients(10**6, batch)
    for a, b in zip(whole[1], chunked[1], strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=0)


def test_log_probabilities_are_the_models(batch):
    policy = Shallow().load()
    logprob_NS = policy.evaluate(batch.decisions, columns=["entropy_NS"])
    tokens = batch.decisions
    for n in range(3):
        ids = tokens.ids_NL[n, : int(tokens.length_N[n])]
        logits = policy.model(ids[None]).logits[0].log_softmax(-1)
        first = int(tokens.prompt_N[n])
        expected = logits[first - 1 : -1].gather(-1, ids[first:, None])[:, 0]
        s = len(ids) - first
        torch.testing.assert_close(logprob_NS.logprob_NS[n, :s], expected, atol=1e-4, rtol=0)
        assert (logprob_NS.logprob_NS[n, s:] == 0).all()


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_refused_before_anything_moves(batch, poison):
    learns = learner(learning_rate=1.0)
    prepared = learns.prepare(batch)
    before = [p.clone() for p in learns.policy.parameters()]
    if poison == "loss":
        prepared = replace(prepared, advantage_NS=torch.full_like(prepared.advantage_NS, float("inf")))
        with pytest.raises(NotFinite, match="was not applied"):
            learns.step(prepared)
    else:
        learns.forward_backward(prepared)
        next(learns.policy.parameters()).grad[0, 0] = float("nan")
        with pytest.raises(NotFinite, match="was not applied"):
            learns.optim_step()
    assert all(torch.equal(a, b) for a, b in zip(before, learns.policy.parameters(), strict=True))
    assert learns.version == 0 and all(p.grad is None for p in learns.policy.parameters())


def test_learning_rate_warms_up_and_decays(batch):
    learns = learner(learning_rate=1.0, warmup_steps=2, decay="linear")
    rates = []
    for version in range(10):
        rates.append(learns.update.optimization.factor(version, 10))
    assert rates[:3] == [0.5, 1.0, 1.0] and rates[3] == pytest.approx(7 / 8) and rates[9] == pytest.approx(1 / 8)


def test_weights_that_were_not_delivered_stop_the_run():
    """A sampler whose load is lost: seen at its level in float32, and by its stillness where a coarse precision hides the level."""
    run = small_run(optimization=Optimization(learning_rate=3e-3), engine=Native(slots=12, precision="int8"), steps=30)
    trainer = Trainer(run)
    trainer.begin()
    copy = trainer.engine.copy
    copy.load = lambda state: None  # acknowledges, does nothing
    with pytest.raises(NotDelivered, match="were not delivered"):
        for _ in range(30):
            trainer.advance()
    assert trainer.learner.version <= 10


def test_delivered_weights_are_proved(monkeypatch):
    monkeypatch.setattr(
        NativeEngine, "form", None
    )  # as where nothing can be read back: all that is known is what they say
    trainer = Trainer(
        small_run(optimization=Optimization(learning_rate=3e-3), engine=Native(slots=12, precision="bfloat16"))
    )
    trainer.begin()
    metrics = [trainer.advance()[0] for _ in range(5)]
    assert any("sync/slope" in row for row in metrics) and all("sync/gap" in row for row in metrics)
    assert all(abs(row["sync/slope"] - 1) < 0.4 for row in metrics if "sync/slope" in row)


def test_an_engine_at_another_version_is_refused():
    trainer = Trainer(small_run())
    trainer.begin()
    with pytest.raises(NotDelivered, match="is at version 0, not 3"):
        DeliveryProof(trainer.learner.policy, trainer.deliveries[""].proof.canary)(trainer.engine, 3)


def test_a_coarse_sampler_that_moves_by_leaps_is_not_refused(monkeypatch):
    """Gaps that happen to be small once do not make the next leap of rounding a lost delivery; no movement at all does."""
    trainer_S, sampler_S = torch.zeros(4), torch.zeros(4)
    trainer = Trainer(small_run(engine=Native(slots=12, precision="int8")))
    trainer.begin()
    engine, proof = trainer.engine, DeliveryProof(trainer.learner.policy, trainer.deliveries[""].proof.canary[:1])
    monkeypatch.setattr(engine, "witness", lambda due, _: [Witness(who="", due=due, version=0, logprob_D=sampler_S)])
    monkeypatch.setattr(proof, "_trainer_D", lambda: trainer_S)
    for shift, gap in ((0.0, 0.01), (0.1, 0.0001)):  # the second is proved with hardly a gap
        trainer_S, sampler_S = torch.full((4,), shift), torch.full((4,), shift + gap)
        proof(engine, 0)
    trainer_S, sampler_S = torch.full((4,), 0.13), torch.full((4,), 0.105)
    assert proof(engine, 0)["sync/unproved_versions"] == 1
    sampler_S = proof.seen[""].proved[1]
    with pytest.raises(NotDelivered, match=r"followed by 0\.00"):
        proof(engine, 0)


def test_the_first_update_on_a_batch_needs_no_forward_pass_of_its_own(batch, monkeypatch):
    learns = Learner(Shallow().load(), small_run(objective=BalancedClip(), optimization=Optimization(minibatches=3)))
    prepared, passes = learns.prepare(batch), []
    inner = learns.models.evaluated
    monkeypatch.setattr(learns.models, "evaluated", lambda *a: passes.append(1) or inner(*a))
    learns.step(prepared)
    assert len(passes) == 2


@pytest.mark.parametrize("most", [0.5, 1e9])
def test_the_norm_and_the_clip_are_torchs_own(most):
    """Of gradients in two types, beside weights that have none."""
    ours, theirs = (torch.nn.ModuleList([torch.nn.Linear(3, 2), torch.nn.Linear(2, 2).bfloat16()]) for _ in range(2))
    generator = torch.Generator().manual_seed(0)
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        one.grad = torch.randn(one.shape, generator=generator).to(one.dtype)
        other.grad = one.grad.clone()
    ours[0].bias.grad = theirs[0].bias.grad = None
    norm = SingleProcess().clip(ours, most)
    assert norm == float(torch.nn.utils.clip_grad_norm_(theirs.parameters(), most)) > 0.5
    for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert (one.grad is None and other.grad is None) or torch.equal(one.grad, other.grad)
    assert SingleProcess().clip(torch.nn.Linear(1, 1), most) == 0.0
