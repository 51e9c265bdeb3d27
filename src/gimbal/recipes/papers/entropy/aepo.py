from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.engines.native import Native
from gimbal.engines.tempered import Tempered
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def aepo() -> Run:
    """AEPO (arXiv:2510.08141): GRPO whose entropy is held at a target by imitating good answers drawn hotter or colder.

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    engine = Tempered(engine=Native(slots=128, precision="int8", entropy=True), target=0.15)
    return replace(grpo(), engine=engine, shaping=(TemperedImitation(),))
