from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.horizon import Horizon
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run
from gimbal.workflows.dialogue import Dialogue


def scaling_inter() -> Run:
    """ScalingInter-RL (arXiv:2509.08755): a calculator answers, in at most two turns at first, then four, then six.

    Sums have two to six terms, and each step of the working is a turn; the paper's stages are 10, 20 and 30 turns of 100 steps each.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, workflow=Dialogue(), curriculum=Horizon(turns=(2, 4, 6), every=13))
