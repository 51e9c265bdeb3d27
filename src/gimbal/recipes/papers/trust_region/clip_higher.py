from __future__ import annotations

from dataclasses import replace

from gimbal.objectives import ClippedRatio
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def clip_higher() -> Run:
    """Clip-higher (DAPO, arXiv:2503.14476): a wider upper clip, so unlikely good decisions can grow and entropy falls more slowly.

    Sixteen updates per batch, as published: with one the ratio is 1 and no clip acts. The learning rate is lower than
    grpo's: at 1e-4 the policy degrades towards the end.
    """
    run = grpo()
    return replace(
        run,
        objective=ClippedRatio(clip_low=0.2, clip_high=0.28),
        optimization=replace(run.optimization, minibatches=16, learning_rate=3e-5),
    )
