from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.swarm import Swarm
from gimbal.objectives import ClippedRatio, TruncatedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def sapo() -> Run:
    """SAPO's swarm (arXiv:2509.08721): runs that share a directory train on one another's groups, half and half.

    Each run names itself and the others: store.directory=DIR store.name=a store.peers=b,c. Without peers it is grpo. Other runs'
    rollouts have importance weights, where the paper treats them as the run's own.
    On-policy except for staleness and peers: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        prompts_per_step=8,
        store=Swarm(taken=8, shared=8),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        correction=TruncatedWeight(),
    )
