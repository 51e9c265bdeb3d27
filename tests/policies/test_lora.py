"""LoRA by peft: only adapters are trained, saved and delivered, and what samples them is what was trained."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import small_run

from gimbal.engines.native import Native, NativeEngine
from gimbal.engines.receipts import tensors
from gimbal.learning.optimization import Optimization
from gimbal.learning.weight_sync.receipts import NotDelivered, Receipts
from gimbal.learning.weight_sync.sparse import Sparse
from gimbal.policies.lora import LoRA, merged
from gimbal.policies.token import CausalLM
from gimbal.runtime import checkpoint
from gimbal.runtime.local import Trainer

ADAPTED = CausalLM(lora=LoRA(rank=4, alpha=8.0))


def run(**changes):
    return small_run(policy=ADAPTED, optimization=Optimization(learning_rate=3e-3), **changes)


@pytest.fixture(scope="module")
def trained():
    torch.set_num_threads(1)
    trainer = Trainer(run(sync=Sparse(dtype="float32")))
    metrics = [trainer.advance()[0] for _ in range(3)]
    return trainer, metrics


def test_before_training_the_adapter_changes_nothing_and_is_all_that_is_trained():
    plain, adapted = CausalLM().load(), ADAPTED.load(seed=1)
    ids = torch.arange(2, 12)[None]
    assert torch.equal(plain.model(ids).logits, adapted.model(ids).logits)
    free = [name for name, parameter in adapted.named_parameters() if parameter.requires_grad]
    assert free and all(".lora_" in name for name in free) and not any("lm_head" in name for name in free)
    assert adapted.weights().keys() == set(free)
    assert plain.weights().keys() == plain.state_dict().keys()
    again = ADAPTED.load(seed=1).weights()
    assert all(torch.equal(again[name], tensor) for name, tensor in adapted.weights().items())


def test_only_the_adapter_moves_and_travels_and_the_proof_passes(trained):
    trainer, metrics = trained
    policy, base = trainer.learner.policy, CausalLM().load().state_dict()
    assert all(torch.equal(base[name], tensor) for name, tensor in frozen(policy).items())
    assert any(bool(tensor.any()) for name, tensor in policy.weights().items() if "lora_B" in name)
    adapter = sum(tensor.numel() * 4 for tensor in policy.weights().values())
    assert all(0 < row["sync/bytes"] < 1.1 * adapter + 50_000 for row in metrics)
    assert adapter < 0.1 * sum(tensor.numel() * 4 for tensor in base.values())
    assert any(row.get("sync/slope", 0) > 0.9 for row in metrics)
    assert trainer.engine.reading().prints == trainer.engine.manifest(tensors(policy))


def frozen(policy):
    found = {name.replace(".base_layer", ""): t for name, t in policy.state_dict().items() if ".lora_" not in name}
    assert len(found) > 10
    return found


@pytest.mark.slow
def test_a_sampler_that_ignores_the_adapter_is_refused(single_thread):
    for audited in (True, False):
        trainer = Trainer(run(engine=Native(slots=12, precision="bfloat16")))
        load = trainer.engine.copy.load
        base = {name: tensor.clone() for name, tensor in trainer.learner.policy.weights().items()}
        trainer.engine.copy.load = lambda state, load=load, base=base: load(base)
        with pytest.MonkeyPatch.context() as patch, pytest.raises(NotDelivered):
            if not audited:
                patch.setattr(NativeEngine, "form", None)
            for _ in range(6):
                trainer.advance()


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("fault", ["ignored", "one layer late", "merged into the base and applied on top", "none"])
def test_what_a_sampler_makes_of_an_adapter_is_seen_at_once(precision, fault, single_thread):
    """At a step of 1e-6: the base that the sampler was started with is compared as well as what travels."""
    policy, draw = ADAPTED.load(), torch.Generator().manual_seed(0)
    engine, receipts = Native(slots=2, precision=precision).start(policy), Receipts(policy)
    for version in range(2):
        old = {name: tensor.clone() for name, tensor in policy.weights().items()}
        for tensor in policy.weights().values():
            tensor.add_((1e-6 if version else 1e-2) * torch.randn(tensor.shape, generator=draw).sign())
        new = policy.weights()
        late = {"ignored": "", "one layer late": ".layers.1."}.get(fault, "nothing")
        engine.load(version, {name: old[name] if late in name and version else new[name] for name in new})
        if version and fault.startswith("merged"):
            layer = engine.copy.module.model.layers[0].self_attn.q_proj
            layer.base_layer.weight.data += layer.get_delta_weight("default").to(layer.base_layer.weight.dtype)
        if version and fault != "none":
            with pytest.raises(NotDelivered, match="were not delivered"):
                receipts.arrived(engine, version)
        else:
            receipts.arrived(engine, version)


@pytest.mark.slow
def test_a_checkpoint_is_the_adapter_in_pefts_layout_and_goes_on_to_the_same_bits(trained, tmp_path):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    trainer, _ = trained
    directory = trainer.save(tmp_path, {})
    files = {path.name for path in (directory / "model").iterdir()}
    assert {"adapter_config.json", "adapter_model.safetensors"} <= files and "model.safetensors" not in files
    ids = torch.arange(2, 12)[None]
    expected = trainer.learner.policy.model(ids).logits
    by_peft = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(CausalLM().path), directory / "model")
    torch.testing.assert_close(by_peft.eval()(ids).logits, expected)
    read = CausalLM(model=str(directory / "model")).load()  # as any other model, to evaluate or to train on
    torch.testing.assert_close(read.model(ids).logits, expected, atol=1e-4, rtol=1e-4)
    assert read.weights().keys() == CausalLM().load().weights().keys() and read.tokenizer.encode("1 + 2")
    again = Trainer(trainer.run, checkpoint.newest(tmp_path))
    before, after = trainer.advance()[0], again.advance()[0]
    for name in ("loss", "grad_norm", "reward/mean"):
        assert before[name] == after[name], name
    assert all(torch.equal(t, again.learner.policy.weights()[n]) for n, t in trainer.learner.policy.weights().items())


def test_merged_weights_are_a_plain_model_that_says_the_same(trained):
    trainer, _ = trained
    policy, plain = trainer.learner.policy, CausalLM().load()
    plain.model.load_state_dict(merged(policy.model))
    ids = torch.arange(2, 12)[None]
    torch.testing.assert_close(plain.model(ids).logits, policy.model(ids).logits, atol=1e-4, rtol=1e-4)
    assert not torch.equal(plain.model(ids).logits, CausalLM().load().model(ids).logits)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_coarse_samplers_hold_the_model_they_were_started_with(precision, single_thread):
    policy = ADAPTED.load()
    engine, whole = (Native(slots=2, precision=precision).start(policy) for _ in range(2))
    engine.load(0, policy.weights())
    whole.load(0, policy.state_dict())
    assert engine.reading().prints == whole.reading().prints == engine.manifest(tensors(policy))


def test_what_is_amiss_is_said_in_a_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"policy\.lora\.rank is 0"):
        LoRA(rank=0)
    with pytest.raises(ValueError, match="does not load as an adapter"):
        replace(ADAPTED, lora=LoRA(adapter=str(tmp_path))).load()


def test_an_adapter_that_lacks_a_matrix_is_refused(tmp_path):
    """peft draws what is missing again, with a warning at most."""
    from safetensors.torch import load_file, save_file

    ADAPTED.load().save(tmp_path)
    file = tmp_path / "adapter_model.safetensors"
    whole = load_file(file)
    name = sorted(whole)[0]
    for content, told in (
        ({key: tensor for key, tensor in whole.items() if key != name}, "1 missing, such as "),
        (whole | {"base_model.model.other.lora_A.weight": torch.zeros(1)}, "1 unknown, such as other.lora_A"),
    ):
        save_file(content, file)
        for policy in (replace(ADAPTED, lora=LoRA(adapter=str(tmp_path))), CausalLM(model=str(tmp_path))):
            with pytest.raises(ValueError, match=told):
                policy.load()
    save_file(whole, file)
    CausalLM(model=str(tmp_path)).load()
