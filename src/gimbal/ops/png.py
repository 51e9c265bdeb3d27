"""Pictures as PNGs."""

from __future__ import annotations

import base64
import io

import torch
from jaxtyping import Float
from torch import Tensor


def png(image_KCHW: Float[Tensor, "K C H W"], most: int = 512) -> str:
    """A row of images with values from -1 to 1 as a data: URL, each of at most ``most`` pixels per side."""
    from PIL import Image  # late: installed only with image models

    pixels_CHW = torch.cat([*((image_KCHW.float() + 1) * 127.5).clamp(0, 255).round().byte()], -1)
    pixels_HWC = pixels_CHW.permute(1, 2, 0).contiguous().cpu().numpy()
    image = Image.fromarray(pixels_HWC[..., 0] if pixels_HWC.shape[-1] == 1 else pixels_HWC)
    image.thumbnail((most * len(image_KCHW), most))
    image.save(file := io.BytesIO(), "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
