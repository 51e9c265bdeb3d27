from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.rank_shaped import RankShaped
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def verl_rank() -> Run:
    """VERL (arXiv:2509.23808): a bonus on rollouts whose hidden states fill more directions, or faster, than they lately did.

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), shaping=(RankShaped(stride=4),))
