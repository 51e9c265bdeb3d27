"""A reference of its own: a teacher, or the model that a run's policy came from, is read, never trained and never saved."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Shallow, other_words, small_run

from gimbal import recipes
from gimbal.advantages import Distillation
from gimbal.learning.optimization import Optimization
from gimbal.objectives import KLPenalty
from gimbal.ops import TokenMean
from gimbal.policies.token import CausalLM
from gimbal.runtime import memory, policies
from gimbal.runtime.local import Trainer


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """gimbal-tiny with two layers, moved."""
    policy, place = Shallow().load(), tmp_path_factory.mktemp("teacher")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in policy.parameters():
            weight += 0.4 * torch.randn(weight.shape, generator=generator) * weight.std()
    policy.save(place)
    return str(place)


def taught(teacher, **changes):
    changes = {"optimization": Optimization(learning_rate=1e-2), **changes}
    return small_run(reference=CausalLM(model=teacher), advantage=Distillation(), **changes)


def weights(policy):
    return torch.cat([p.detach().flatten() for p in policy.parameters()])


@pytest.mark.slow
def test_the_policy_comes_nearer_to_its_teacher_which_stays_as_it_was(teacher):
    run = taught(teacher, optimization=Optimization(learning_rate=3e-4), aggregation=TokenMean(), prompts_per_step=32)
    trainer = Trainer(run)
    kl = [trainer.advance()[0]["distillation/kl"] for _ in range(8)]
    assert torch.equal(weights(trainer.learner.models["reference"]), weights(CausalLM(model=teacher).load()))
    trainer.close()
    assert kl[0] > 0.1 and sum(kl[-3:]) / 3 < 0.6 * kl[0]


def test_a_penalty_pulls_towards_it_too(teacher):
    own, first = (
        Trainer(small_run(regularisers=(KLPenalty(coef=0.1),), reference=reference))
        for reference in (CausalLM(model=teacher), None)
    )
    found = [trainer.advance()[0]["kl/ref"] for trainer in (own, first)]
    own.close(), first.close()
    assert found[0] > 1e-3 and abs(found[1]) < 1e-6


@pytest.mark.slow
def test_a_resumed_run_loads_it_again_and_goes_on_bit_for_bit(teacher, single_thread, tmp_path):
    run = taught(teacher)
    trainer = Trainer(run)
    for _ in range(2):
        trainer.advance()
    saved = trainer.save(tmp_path, {})
    assert not trainer.learner.models.state_dict()["models"], "it lies where it was loaded from"
    resumed = Trainer(run, saved)
    for _ in range(2):
        one, other = trainer.advance()[0], resumed.advance()[0]
        assert one["distillation/kl"] == other["distillation/kl"]
    assert torch.equal(weights(trainer.learner.policy), weights(resumed.learner.policy))
    trainer.close(), resumed.close()


@pytest.mark.slow
def test_one_that_was_exchanged_before_a_resume_is_told(teacher, single_thread, tmp_path):
    shutil.copytree(teacher, tmp_path / "mine")
    run = taught(str(tmp_path / "mine"))
    trainer = Trainer(run)
    trainer.advance()
    saved = trainer.save(tmp_path, {})
    trainer.close()
    said = []
    Trainer(run, saved, said.append).close()
    assert not said
    policy = CausalLM(model=teacher).load()
    with torch.no_grad():
        next(policy.parameters()).mul_(1.01)
    policy.save(tmp_path / "mine")
    Trainer(run, saved, said.append).close()
    assert said == ["mine was edited since the checkpoint: it is no longer the same run, so do not compare it as one"]


@pytest.mark.parametrize("key", ["reference", "teacher_model_name_or_path", "reference.model"])
def test_as_it_is_typed(teacher, key):
    from gimbal.config.parts import Text

    assert recipes.load("opd", {key: Text(teacher)}).reference == CausalLM(model=teacher)
    assert recipes.load("opd", {"reference": Text("gimbal-tiny")}).reference == CausalLM()
    both = recipes.load("grpo", {"beta": Text("0.1"), "reference": Text(teacher)})
    assert both.reference == CausalLM(model=teacher) and both.regularisers


def test_one_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"^reference.model: .*reference.model"):
        policies.check_files(taught(str(tmp_path / "nowhere")))


def test_one_with_other_tokens_is_refused():
    with pytest.raises(
        ValueError, match="reference cannot evaluate what the policy samples: its tokenizer has other tokens"
    ):
        Trainer(taught(other_words()))


def test_memory_counts_its_own_size(teacher):
    run = replace(taught(teacher), policy=CausalLM())
    shape = memory.shape_of(CausalLM())
    found = memory.predicted(run, shape, 32)["other models"]
    assert found == 4 * memory.shape_of(CausalLM(model=teacher)).weights < 4 * shape.weights
