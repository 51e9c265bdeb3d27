"""A diffusers directory that is nothing but configurations: trained with LoRA, exported, and drawn from by diffusers alone."""

import json

import pytest
import torch

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[peft]'")

from safetensors.torch import load_file

from gimbal.cli import main

SMALL = {
    "num_attention_heads": 2,
    "attention_head_dim": 8,
    "in_channels": 1,
    "num_layers": 1,
    "sample_size": 8,
    "patch_size": 4,
}
SMALL |= {"num_embeds_ada_norm": 3, "norm_num_groups": 1}
REWARD = """
def dark(rollout):
    return -float(rollout.decisions.sample_ND.mean())
"""


def configured(directory):
    """config.json and scheduler_config.json, and no weights."""
    network = diffusers.DiTTransformer2DModel(**SMALL)
    diffusers.FlowMatchEulerDiscreteScheduler().save_pretrained(directory / "scheduler")
    network.save_config(directory / "transformer")
    assert not list(directory.rglob("*.safetensors"))
    return directory


@torch.no_grad()
def drawn(directory, steps=4):
    """Samples by what diffusers reads there, without a line of gimbal."""
    network = diffusers.DiTTransformer2DModel.from_pretrained(directory / "transformer").eval()
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(directory / "scheduler")
    scheduler.set_timesteps(steps)
    x = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    for time in scheduler.timesteps:
        said = network(x, timestep=time.expand(3), class_labels=torch.full((3,), 3)).sample
        x = scheduler.step(said, time, x).prev_sample
    return x


@pytest.mark.slow
def test_from_configurations_through_lora_to_samples_of_diffusers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    configured(tmp_path / "config")
    (tmp_path / "mine.py").write_text(REWARD)
    words = [
        "policy.model=config",
        "policy.fresh=true",
        "policy.lora=LoRA(rank=2)",
        "policy.batch=8",
        "reward=mine.py:dark",
    ]
    words += [
        "steps=3",
        "prompts_per_step=2",
        "num_generations=4",
        "sampling.max_length=4",
        "held_out=none",
        "threads=1",
    ]
    assert main(["train", "flow_grpo", *words, "optimization.learning_rate=0.03", "--name", "mine"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    for target, options in (("out", []), ("half", ["--dtype", "bfloat16"])):
        assert main(["export", str(run), str(tmp_path / target), *options]) == 0
    out = tmp_path / "out"
    card = (out / "README.md").read_text()
    assert "library_name: diffusers" in card and "LoRA adapter merged in" in card
    assert "_name_or_path" not in json.loads((out / "transformer" / "config.json").read_text())
    ours, theirs = drawn(out), drawn(run / "model")
    assert torch.equal(ours, theirs) and bool(torch.isfinite(ours).all())
    (weights,) = (out / "transformer").glob("*.safetensors")
    assert not any("lora" in name for name in load_file(weights)), "it is merged"
    adapter = load_file(run / "model" / "adapter_model.safetensors")
    assert any(x.any() for name, x in adapter.items() if "lora_B" in name), "and was trained"
    (half,) = (tmp_path / "half" / "transformer").glob("*.safetensors")
    assert {x.dtype for x in load_file(half).values()} == {torch.bfloat16}
    assert main(["export", str(run), str(tmp_path / "adapter"), "--adapter"]) == 0
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    capsys.readouterr()
