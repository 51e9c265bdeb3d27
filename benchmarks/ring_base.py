"""Trains gimbal-ring, the 2-d flow that the package ships: python benchmarks/ring_base.py DIRECTORY [ring | grid]

Data: eight Gaussians on a circle of radius 4 and a ninth at its centre, a tenth as likely as one of them (``rewards/points.py``);
with ``grid``, nine in a 3x3 grid, all alike. A diffusers DiT whose samples are one pixel of two channels, without classes: a
network of two numbers and a time in the layout that every part of the family drives. The flow is that of ``digits_base.py``, x_t =
(1 - t) x0 + t eps, and the average of the weights over the last steps is kept. About a minute of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from averaged import averaged
from diffusers import DiTTransformer2DModel, FlowMatchEulerDiscreteScheduler

from gimbal.rewards.points import mixture

STEPS, BATCH, RATE, AVERAGE = 3000, 256, 3e-3, 0.998


def main(directory: Path, kind: str = "ring", steps: int = STEPS) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    data = mixture(kind)
    model = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=12,
        in_channels=2,
        num_layers=2,
        sample_size=1,
        patch_size=1,
        num_embeds_ada_norm=1,  # a DiT has classes; no sample is of this one
        norm_num_groups=1,
    ).eval()
    null_B = torch.ones(BATCH, dtype=torch.long)

    def loss(_: int) -> torch.Tensor:
        x_B = data.draw(BATCH)[:, :, None, None]
        t_B, eps_B = torch.rand(BATCH), torch.randn_like(x_B)
        t = t_B[:, None, None, None]
        v_B = model((1 - t) * x_B + t * eps_B, timestep=1000 * t_B, class_labels=null_B).sample
        return (v_B - (eps_B - x_B)).square().mean()

    found = averaged(model, loss, steps, rate=RATE, average=AVERAGE, warm=0.05, told=500)
    found.save_pretrained(directory / "transformer")
    FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=1.0).save_pretrained(directory / "scheduler")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
