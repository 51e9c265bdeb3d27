from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.rank_shaped import RankShaped
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def verl_rank() -> Run:
    """VERL (arXiv:2509.23808): a bonus for rollouts whose hidden states have a higher or faster-growing effective rank than before.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), shaping=(RankShaped(stride=4),))
