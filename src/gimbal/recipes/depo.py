from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.parts_clipped import PartsClipped
from gimbal.ops.part_mean import PartMean
from gimbal.recipes.gspo import gspo
from gimbal.runtime.run import Run


def depo() -> Run:
    """DePO (arXiv:2604.20328): clips and means apart for tokens and latents; on a token policy, DAPO's clip with the token mean."""
    return replace(gspo(), objective=PartsClipped(), aggregation=PartMean(latent=0.5))
