from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.swarm import Swarm
from gimbal.objectives import ClippedRatio, TruncatedWeight
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def sapo() -> Run:
    """SAPO's swarm (arXiv:2509.08721): runs that share a directory train on one another's groups, half and half.

    Each run of it names itself and the others: store.directory=DIR store.name=a store.peers=b,c. Alone it is grpo. What is foreign is
    weighed by how it was drawn, where the paper takes it for the run's own.
    On-policy but for staleness and peers: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        prompts_per_step=8,
        store=Swarm(taken=8, shared=8),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        correction=TruncatedWeight(),
    )
