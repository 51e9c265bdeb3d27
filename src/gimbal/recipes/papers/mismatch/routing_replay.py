from __future__ import annotations

from dataclasses import replace

from gimbal.engines.episodes import Episodes
from gimbal.objectives.surrogates.total_ratio_weight import TotalRatioWeight
from gimbal.policies.mixture import MixtureOfExperts
from gimbal.recipes.papers.control.cartpole import cartpole
from gimbal.runtime.run import Run


def routing_replay() -> Run:
    """MiniRL with rollout routing replay (arXiv:2512.01374): trains a mixture of experts with the routing of the bfloat16 sampler."""
    return replace(
        cartpole(),
        policy=MixtureOfExperts(observations=4, actions=2),
        engine=Episodes(slots=16, dtype="bfloat16"),
        objective=TotalRatioWeight(),
    )
