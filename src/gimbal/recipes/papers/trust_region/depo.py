from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.surrogates.parts_clipped import PartsClipped
from gimbal.ops.part_mean import PartMean
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def depo() -> Run:
    """DePO's objective (arXiv:2604.20328), clips and means apart for tokens and latents; on text alone, as here, DAPO's clip
    with dual clip 3.

    No policy of gimbal draws latent vectors between tokens, so what is DePO's own does not act here: on a policy of yours that does,
    and marks them (records.Part.LATENT), it would.
    """
    return replace(gspo(), objective=PartsClipped(), aggregation=PartMean(latent=0.5))
