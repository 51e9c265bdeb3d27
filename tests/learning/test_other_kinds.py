"""A language model and a flow in one run: whose rows move whose weights by which loss, and what of a run holds for both."""

import json
import shutil
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import denoising_run, small_run
from test_resume import weights, written
from test_separate import bits, trained

from gimbal import api, config
from gimbal.cli import main
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.packing import pack
from gimbal.engines.denoising import Denoising
from gimbal.engines.native import Native
from gimbal.environments.conditions import Conditions
from gimbal.environments.digit_sums import DigitSums
from gimbal.learning.kinds import OtherKind
from gimbal.learning.learner import Learner
from gimbal.learning.separate import SeparateWeights
from gimbal.learning.weight_sync.receipts import NotDelivered
from gimbal.objectives import ClippedStep, Reinforce, StepKL, TruncatedWeight
from gimbal.objectives.regularisers.velocity_penalty import VelocityPenalty
from gimbal.ops import SequenceMean
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Episode, TrainBatch
from gimbal.rewards.digits import DigitClass
from gimbal.runtime import checkpoint, compose, directories
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.base import AbstractWorkflow, Draw
from gimbal.workflows.plan_and_draw import PlanAndDraw
from gimbal.workflows.single import SingleTurn


@dataclass(frozen=True, kw_only=True)
class OnlyDraws(AbstractWorkflow):
    """No plan: the painter draws the class of the task."""

    @property
    def players(self):
        return frozenset({"planner", "painter"})

    def __call__(self, attempt):
        return Episode.of((yield Draw(task=attempt.task, sample=attempt.sample, role="painter")))


def kind(**changes: object) -> OtherKind:
    made = OtherKind(
        policy=Denoiser(batch=8),
        engine=Denoising(slots=5),
        sampling=PathSampling(max_length=4, noise=1.0),
        objective=ClippedStep(),
        regularisers=(VelocityPenalty(coef=0.5),),
    )
    return replace(made, **changes)


def joint(own: OtherKind | None = None, **changes: object) -> Run:
    entry = SeparateWeights(kind=own or kind(), learning_rate=3e-4)
    return small_run(
        **{
            "workflow": PlanAndDraw(plan=r"(\d)"),
            "separate": {"painter": entry},
            "tasks": DigitSums(terms=2, prompt="{sum} =\n", size=50),
            "rewards": (DigitClass(scale="log", name="log_p"),),
            "engine": Native(slots=6, precision="float32"),
            **changes,
        }
    )


# Limiting cases.


@pytest.mark.parametrize("age", [0, 1])
def test_without_words_it_is_flow_grpo_bit_for_bit(single_thread, age):
    alone = denoising_run(
        tasks=Conditions(labels=(3, 8)), rewards=(DigitClass(),), budget=Fixed(), max_staleness=age, seed=3
    )
    own = OtherKind(
        policy=alone.policy,
        engine=alone.engine,
        sampling=alone.sampling,
        objective=alone.objective,
        regularisers=(*alone.regularisers, VelocityPenalty(coef=0.3)),
    )
    alone = replace(alone, regularisers=own.regularisers)
    whole = replace(
        alone,
        policy=small_run().policy,
        engine=Native(slots=4, precision="float32"),
        sampling=Sampling(max_length=5),
        objective=small_run().objective,
        regularisers=(),
        workflow=OnlyDraws(),
        separate={"painter": SeparateWeights(kind=own)},
    )
    plain, both = trained(alone, 3), trained(whole, 3)
    assert torch.equal(bits(plain.learner.policy), bits(both.learner.models["painter"]))
    assert not torch.equal(bits(plain.learner.policy), bits(alone.policy.load()))
    assert torch.equal(bits(both.learner.policy), bits(small_run().policy.load()))  # no row is its own
    metrics, others = plain.advance()[0], both.advance()[0]
    for name in ("loss", "clip_ratio/high", "kl/ref", "kl/velocity", "mismatch/k3", "kl/old"):
        assert metrics[name] == others[f"{name}/painter"] and name not in others


def test_at_weight_0_the_words_learn_from_pictures_that_stay_as_they_were(single_thread):
    still, moved = (trained(joint(kind(weight=weight, regularisers=())), 1) for weight in (0.0, 1.0))
    assert torch.equal(bits(still.learner.models["painter"]), bits(Denoiser().load()))
    assert not torch.equal(bits(moved.learner.models["painter"]), bits(Denoiser().load()))
    # Until another picture is drawn the weight of the one is nothing to the other.
    assert torch.equal(bits(still.learner.policy), bits(moved.learner.policy))
    assert not torch.equal(bits(still.learner.policy), bits(small_run().policy.load()))


def batch_of(trainer: Trainer) -> TrainBatch:
    trainer.begin()
    return pack(trainer.pipeline.next_batch(0)[0])


def gradients(learner: Learner, prepared: TrainBatch) -> dict[str, torch.Tensor]:
    learner.forward_backward(prepared)
    found = {
        name: torch.cat(
            [weight.grad.flatten() for weight in learner.models[name].parameters() if weight.grad is not None]
        )
        for name in learner.models.optimizers
    }
    learner._forget()
    return found


@pytest.mark.parametrize("aggregation", [{}, {"aggregation": SequenceMean()}], ids=["tokens", "sequences"])
def test_each_kind_has_its_own_loss_and_its_own_denominator(single_thread, aggregation):
    """The gradients of a batch of both are those of two learners that see the rows of one kind alone, with its advantages."""
    run = joint(kind(weight=0.25, regularisers=(StepKL(coef=0.1), VelocityPenalty(coef=0.5))), **aggregation)
    trainer = Trainer(run)
    prepared = trainer.learner.prepare(batch_of(trainer))
    assert set(prepared.roles) == {"painter", "planner"}
    found = gradients(trainer.learner, prepared)
    own_N = prepared.role_N == prepared.roles.index("painter")
    rows = {name: prepared.select(own.nonzero()[:, 0]) for name, own in (("painter", own_N), ("policy", ~own_N))}
    rows = {name: replace(one, roles=("",), role_N=torch.zeros_like(one.role_N)) for name, one in rows.items()}
    words = Trainer(replace(run, workflow=SingleTurn(), separate={}))
    assert torch.equal(found["policy"], gradients(words.learner, rows["policy"])["policy"])
    painter = run.separate["painter"].kind
    parts = {"policy": painter.policy, "engine": painter.engine, "sampling": painter.sampling}
    losses = {"objective": painter.objective, "regularisers": painter.regularisers}
    paths = Trainer(replace(run, workflow=SingleTurn(), separate={}, tasks=Conditions(labels=(1,)), **parts, **losses))
    alone = gradients(paths.learner, rows["painter"])["policy"]
    assert alone.norm() > 1e-3 and torch.allclose(found["painter"], 0.25 * alone, atol=1e-7)


def test_micro_batches_of_any_size_give_the_same_gradient(single_thread):
    one, many = (
        Trainer(joint(optimization=replace(joint().optimization, microbatch_tokens=size))) for size in (10**6, 1)
    )
    batch = batch_of(one)
    whole, parts = (gradients(t.learner, t.learner.prepare(batch)) for t in (one, many))
    assert whole.keys() == parts.keys() == {"policy", "painter"}
    for name, gradient in whole.items():
        assert torch.allclose(gradient, parts[name], atol=1e-6) and gradient.norm() > 1e-3


def test_the_correction_is_for_the_words(single_thread):
    """Weights of 0 for the sampler's distribution would stop the paths, which have none."""
    zero = TruncatedWeight(cap=1e-9)
    plain, cut = (Trainer(joint(correction=correction)) for correction in (None, zero))
    batch = batch_of(plain)
    whole, weighed = (gradients(t.learner, t.learner.prepare(batch)) for t in (plain, cut))
    assert torch.equal(whole["painter"], weighed["painter"])
    assert weighed["policy"].norm() < 1e-6 * whole["policy"].norm()


def test_the_reference_is_the_flow_as_it_began(single_thread):
    trainer = trained(joint(), 2)
    assert torch.equal(bits(trainer.learner.models["reference/painter"]), bits(Denoiser().load()))
    assert trainer.advance()[0]["kl/velocity/painter"] > 1e-8
    assert "reference" not in trainer.learner.models


# A run holds for both.


@pytest.mark.slow
@pytest.mark.parametrize("age", [0, 2])
def test_a_run_of_two_kinds_resumed_from_the_middle_is_the_uninterrupted_run(single_thread, tmp_path, age):
    held_out = HeldOut(tasks=DigitSums(terms=2, prompt="{sum} =\n", size=3, seed=9), samples=1)
    run = joint(max_staleness=age, steps=6, record_every=2, held_out=held_out)
    run_local(run, tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(checkpoint.newest(tmp_path / "cut"))
    run_local(run, tmp_path / "cut", resume=True)
    assert written(tmp_path / "whole") == written(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")
    place = Path("model/painter/transformer/diffusion_pytorch_model.safetensors")
    assert (tmp_path / "whole" / place).read_bytes() == (tmp_path / "cut" / place).read_bytes()
    steps = [json.loads(line) for line in (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()]
    assert max(step["staleness/max"] for step in steps) == age
    assert all(step["sync/receipts"] == step["sync/receipts/painter"] == 1 for step in steps)
    assert all(step["lr/painter"] == 3e-4 and step["grad_norm/painter"] > 0 for step in steps)
    assert {"mismatch/prob_diff", "mismatch/k3/painter", "entropy/sampled"} <= steps[0].keys()
    assert "mismatch/prob_diff/painter" not in steps[0]  # densities have no such distance
    assert steps[0]["entropy/sampled"] > 0 and "reward/unlike_frac" not in steps[0]
    rows = [json.loads(line) for line in (tmp_path / "whole" / "rollouts.jsonl").read_text().splitlines()]
    assert any("±" in json.dumps(row, ensure_ascii=False) for row in rows), (
        "a path's steps are shown as its own policy does"
    )


@pytest.mark.slow
def test_both_kinds_are_evaluated_and_exported(single_thread, tmp_path, capsys):
    held_out = HeldOut(tasks=DigitSums(terms=2, size=4, seed=9), samples=2)
    run = joint(policy=CausalLM(), steps=2, held_out=held_out)
    directory = directories.create(run, "mine", "run", tmp_path)
    summary = run_local(run, directory)
    again = api.to_evaluate(str(directory), "", tmp_path)
    assert again.separate["painter"].kind.policy.model.endswith("/model/painter")
    assert api.evaluate(again).score == pytest.approx(summary.after["eval/score"])
    assert main(["export", str(directory), str(tmp_path / "flow"), "--role", "painter"]) == 0
    assert "the model of painter of" in capsys.readouterr().out
    assert torch.equal(
        bits(Denoiser(model=str(tmp_path / "flow")).load()), bits(again.separate["painter"].kind.policy.load())
    )
    assert "library_name: diffusers" in (tmp_path / "flow" / "README.md").read_text()


def test_a_version_that_does_not_reach_the_flow_stops_the_run(single_thread, monkeypatch):
    trainer = trained(joint(), 1)
    monkeypatch.setattr(trainer.deliveries["painter"].sync, "deliver", lambda engine: None)
    with pytest.raises(NotDelivered):
        trainer.advance()


def test_a_kind_can_be_typed_and_set_from_within():
    text = "OtherKind(policy=Denoiser(), engine=Denoising(), sampling=PathSampling(noise=0.5), objective=ClippedStep())"
    run = config.override(joint(), {"separate.painter": f"SeparateWeights(kind={text})"})
    assert run.separate["painter"].kind.sampling.noise == 0.5
    run = config.override(run, {"separate.painter.kind.sampling.noise": "0.9"})
    assert run.separate["painter"].kind.sampling.noise == 0.9
    compose.check(run)


def test_a_column_that_no_policy_of_its_kind_has_is_refused(single_thread):
    with pytest.raises(ValueError, match=r"StepKL reads mean_NSD, which TokenPolicy does not provide"):
        Trainer(joint(regularisers=(StepKL(),), separate={}, workflow=SingleTurn()))
    with pytest.raises(ValueError, match=r"kind: a model of another kind begins as kind.policy says"):
        SeparateWeights(model="x", kind=kind())
    assert Trainer(joint(kind(objective=Reinforce()))).learner.separate.keys() == {"painter"}
