"""A diffusers directory that is nothing but configurations: trained with LoRA, exported, and drawn from by diffusers alone."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")
pytest.importorskip("peft", reason="peft is not installed: pip install -e '.[peft]'")

from safetensors.torch import load_file

from gimbal import recipes
from gimbal.cli import export, main
from gimbal.environments.conditions import Conditions
from gimbal.policies.denoiser import Denoiser

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


def ran(card, directory):
    """What the card's own lines leave behind."""
    found = {}
    exec(card.split("```python")[1].split("```")[0].replace("DIRECTORY", str(directory)), found)
    assert bool(torch.isfinite(found["x"]).all())
    return found


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
    shown = ran(card, out)
    assert shown["x"].shape == (4, 1, 8, 8) and len(shown["scheduler"].timesteps) == 4 and shown["label"][0] == 3
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


@pytest.mark.parametrize("labels", [(), (2, 1)])
def test_the_lines_of_a_card_sample(tmp_path, labels):
    unet = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        num_class_embeds=3 if labels else None,
        block_out_channels=(8, 8),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "UpBlock2D"),
        norm_num_groups=4,
    )
    unet.save_pretrained(tmp_path / "unet")
    diffusers.DDIMScheduler().save_pretrained(tmp_path / "scheduler")
    run = replace(recipes.load("ddpo"), tasks=Conditions(labels=labels))
    lines = "\n".join(export._sampling(run, tmp_path))
    shown = ran(f"```python\n{lines}\n```", tmp_path)
    assert f'UNet2DModel.from_pretrained("{"DIRECTORY"}", subfolder="unet")' in lines
    assert len(shown["scheduler"].timesteps) == run.sampling.max_length and ("label" in shown) == bool(labels)
    assert not labels or shown["label"].tolist() == [2] * 4
    assert export._only_here(tmp_path) == ""


def test_a_guided_flow_s_lines_sample_with_its_guidance(tmp_path):
    run = recipes.load("flow_grpo")
    directory = Path(run.policy.path)
    guided = replace(run, policy=replace(run.policy, guidance=3.0))
    (plain, own) = (
        ran("```python\n" + "\n".join(export._sampling(r, directory)) + "\n```", directory) for r in (run, guided)
    )
    assert plain["x"].shape == own["x"].shape == (4, 1, 8, 8) and "2 * (said - " in "\n".join(
        export._sampling(guided, directory)
    )


def test_a_network_that_is_told_more_than_diffusers_gives_is_named(tmp_path):
    assert "2 of its 3 channels say what came before it" in export._only_here(Path(recipes.load("streams").policy.path))
    Denoiser(jumps=True).load().save(tmp_path / "jumps")
    assert "1 of its 2 channels say how far a step goes" in export._only_here(tmp_path / "jumps")
    assert export._only_here(tmp_path) == "", "no network of diffusers at all"
