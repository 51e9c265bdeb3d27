from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.novelty_sharpened import NoveltySharpened
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def xrpo() -> Run:
    """XRPO's sharpening (arXiv:2510.06672): raises the advantage of good answers that were unlikely within their group.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), shaping=(NoveltySharpened(),))
