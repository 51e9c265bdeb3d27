"""Trains gimbal-shapes, the model of shapes of 16x16 pixels that the package ships: python benchmarks/shapes_base.py DIRECTORY

A diffusers DiT of 183 k parameters, of patches of 4x4 pixels in three channels, on all drawings of ``rewards/shapes.py``: diffusion by
the cosine schedule of 1,000 steps, loss |x(x_t, t, label) - x0|^2 (prediction_type "sample"). A patch has 48 numbers and the network is
48 wide, so it has no room to say what the noise was, as flows and other predictions do. One class in ten is hidden, so that the model
also draws shapes without being told which; of one picture in five (WRONG) the class is drawn anew, as captions are wrong, so that a
policy is left something to learn. The average of the weights over the last steps is kept. About three minutes of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from averaged import averaged
from diffusers import DDIMScheduler, DiTTransformer2DModel

from gimbal.rewards.shapes import COUNT, SIDE, drawings

STEPS, BATCH, RATE, AVERAGE = 3000, 128, 3e-3, 0.998
HIDDEN, WRONG = 0.1, 0.2


def main(directory: Path, steps: int = STEPS) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    drawing_KD, class_K = drawings()
    x_K = drawing_KD.view(-1, 3, SIDE, SIDE)
    share_K = 1 / class_K.bincount()[class_K].float()  # each class alike: small shapes have more places
    scheduler = DDIMScheduler(
        beta_schedule="squaredcos_cap_v2", prediction_type="sample", clip_sample=False, timestep_spacing="trailing"
    )
    model = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=12,
        in_channels=3,
        num_layers=3,
        sample_size=SIDE,
        patch_size=4,
        num_embeds_ada_norm=COUNT,
        norm_num_groups=1,
    ).eval()  # its own dropping of labels is off: ours is below

    def loss(_: int) -> torch.Tensor:
        row_B = torch.multinomial(share_K, BATCH, replacement=True)
        label_B = torch.where(torch.rand(BATCH) < WRONG, torch.randint(COUNT, (BATCH,)), class_K[row_B])
        label_B = torch.where(torch.rand(BATCH) < HIDDEN, COUNT, label_B)
        x_B, step_B = x_K[row_B], (1000 * torch.rand(BATCH)).long()
        kept_B = scheduler.alphas_cumprod[step_B][:, None, None, None]
        seen_B = kept_B.sqrt() * x_B + (1 - kept_B).sqrt() * torch.randn_like(x_B)
        found_B = model(seen_B, timestep=step_B.float(), class_labels=label_B).sample
        return (found_B - x_B).square().mean()

    found = averaged(model, loss, steps, rate=RATE, average=AVERAGE, warm=0.05, told=500)
    found.save_pretrained(directory / "transformer")
    scheduler.save_pretrained(directory / "scheduler")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
