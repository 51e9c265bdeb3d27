from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.tempered_imitation import TemperedImitation
from gimbal.engines.native import Native
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run
from gimbal.workflows.tempered import Tempered


def aepo() -> Run:
    """AEPO (arXiv:2510.08141): GRPO that holds entropy at a target by imitating good answers sampled hotter or colder.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    engine = Native(slots=128, precision="int8", entropy=True)
    return replace(grpo(), engine=engine, workflow=Tempered(target=0.15), shaping=(TemperedImitation(),))
