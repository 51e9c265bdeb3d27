"""Trains gimbal-digits, gimbal-digits-ddim, gimbal-digits-stream and gimbal-digits-shown, the models of 8x8 digits that the package
ships: python benchmarks/digits_base.py DIRECTORY [ddim | stream | shown]

A diffusers DiT of 297 k parameters on scikit-learn's 1,797 digits, as diffusers would save its pipeline: transformer/, scheduler/.
The flow: x_t = (1 - t) x0 + t eps, loss |v(x_t, t, label) - (eps - x0)|^2, t uniform. With ``ddim``: diffusion by the cosine
schedule of 1,000 steps, loss |v - (signal eps - noise x0)|^2 (v_prediction). Every second label is the null label, so that the
model also draws digits without being told which. With ``stream``: the flow, where every second sample follows another digit of its
class, which the network sees (policy.history), and has the null label. With ``shown``: the flow, where the network sees a part of the
digit itself in the same channels: all but a hole, half of it, or its means over blocks of 2x2 or 4x4 pixels; of one in eight nothing.
One digit in five (KEPT_OUT) is left out, to judge what it draws. The average of the weights over the last steps is kept. About 3
minutes of one core.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from averaged import averaged
from diffusers import DDIMScheduler, DiTTransformer2DModel, FlowMatchEulerDiscreteScheduler
from sklearn.datasets import load_digits

from gimbal.environments.shown_pictures import KEPT_OUT
from gimbal.ops.shown import coarse, half, hole, shown

STEPS, BATCH, RATE, AVERAGE = 4000, 128, 2e-3, 0.998
NULL = 10  # the label that says nothing


def scheduler_of(kind: str) -> FlowMatchEulerDiscreteScheduler | DDIMScheduler:
    if kind != "ddim":
        return FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=1.0)
    return DDIMScheduler(beta_schedule="squaredcos_cap_v2", prediction_type="v_prediction", clip_sample=False)


def before(x_K: torch.Tensor, label_K: torch.Tensor, row_B: torch.Tensor) -> torch.Tensor:
    """[B, 2, 8, 8]: another digit of the same class, and ones beside it; of every second row all 0."""
    order_K, count_C = label_K.argsort(), label_K.bincount()
    label_B = label_K[row_B]
    place_B = (count_C.cumsum(0) - count_C)[label_B] + (torch.rand(len(row_B)) * count_C[label_B]).long()
    given_B = torch.cat([x_K[order_K[place_B]], torch.ones(len(row_B), 1, 8, 8)], 1)
    given_B[::2] = 0
    return given_B


def parts(x_B: torch.Tensor) -> torch.Tensor:
    """[B, 2, 8, 8]: a part of each picture, and where it is."""
    places = np.random.default_rng(int(torch.randint(2**31, ())))
    given = []
    for x_D in x_B:
        kind = int(places.integers(8))
        if kind == 0:
            given.append(torch.zeros(2, 8, 8))
        elif kind > 5:
            given.append(coarse(x_D, 2 if kind == 6 else 4))
        else:
            given.append(shown(x_D, hole(places, 8, int(places.integers(3, 7))) if kind < 4 else half(places, 8)))
    return torch.stack(given)


def main(directory: Path, kind: str = "flow", steps: int = STEPS) -> None:
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(0)
    found = load_digits()
    x_K = torch.tensor(found.images, dtype=torch.float32)[:, None] / 8 - 1  # [-1, 1]
    label_K = torch.tensor(found.target)
    if kind == "shown":
        x_K, label_K = (rows[torch.arange(len(rows)) % KEPT_OUT > 0] for rows in (x_K, label_K))
    told = kind in ("stream", "shown")
    model = DiTTransformer2DModel(
        num_attention_heads=4,
        attention_head_dim=16,
        in_channels=3 if told else 1,
        out_channels=1 if told else None,
        num_layers=3,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=NULL,
        norm_num_groups=1,
    ).eval()  # its own dropping of labels, one in ten, is off: ours is below
    scheduler = scheduler_of(kind)

    def loss(_: int) -> torch.Tensor:
        row_B = torch.randint(len(x_K), (BATCH,))
        x_B, label_B = x_K[row_B], torch.where(torch.rand(BATCH) < 0.5, NULL, label_K[row_B])
        given_B = before(x_K, label_K, row_B) if kind == "stream" else x_B[:, :0]
        if kind == "shown":
            given_B = parts(x_B)
        if kind == "stream":
            label_B[1::2] = NULL
        t_B, eps_B = torch.rand(BATCH), torch.randn_like(x_B)
        if kind != "ddim":
            signal_B, noise_B, time_B = 1 - t_B, t_B, 1000 * t_B
        else:
            step_B = (1000 * t_B).long()
            kept_B = scheduler.alphas_cumprod[step_B]
            signal_B, noise_B, time_B = kept_B.sqrt(), (1 - kept_B).sqrt(), step_B.float()
        signal, noise = signal_B[:, None, None, None], noise_B[:, None, None, None]
        wanted_B = eps_B - x_B if kind != "ddim" else signal * eps_B - noise * x_B
        seen_B = torch.cat([signal * x_B + noise * eps_B, given_B], 1)
        v_B = model(seen_B, timestep=time_B, class_labels=label_B).sample
        return (v_B - wanted_B).square().mean()

    found = averaged(model, loss, steps, rate=RATE, average=AVERAGE, warm=0.05)
    found.save_pretrained(directory / "transformer")
    scheduler.save_pretrained(directory / "scheduler")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:3])
