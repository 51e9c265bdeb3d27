from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.surrogates.parts_clipped import PartsClipped
from gimbal.ops.part_mean import PartMean
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def depo() -> Run:
    """DePO's objective (arXiv:2604.20328): separate clips and means for tokens and latents; on text only, DAPO's clip with dual clip 3.

    No gimbal policy samples latent vectors between tokens, so DePO's own part has no effect here. It acts on your own policy if it
    samples them and marks them with records.Part.LATENT.
    """
    return replace(gspo(), objective=PartsClipped(), aggregation=PartMean(latent=0.5))
