"""ARC-Forcing on gimbal-digits-stream."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.optimization import Optimization
from gimbal.learning.updates.adversarial_forcing import AdversarialForcing
from gimbal.recipes.papers.denoising.streams import streams
from gimbal.runtime.run import UpdateRun


def arc_forcing() -> UpdateRun:
    """ARC-Forcing (arXiv:2605.22717): streams learn from a discriminator alone, after own blocks, to go on as real digits do.

    On-policy, without a teacher; the rewards only measure. Shuffled conditions teach the discriminator to read the block before
    (`update.contrast`); `workflow.past='RealSamples()'` is teacher forcing. Left out: a cache over blocks. Not shown here: music, for
    which it was made. No guidance.
    """
    return replace(
        streams(),
        max_staleness=0,
        ahead="ready",
        update=AdversarialForcing(
            optimization=Optimization(learning_rate=1e-4, critic_learning_rate=1e-3, beta1=0.0, microbatch_tokens=65536)
        ),
    )
