"""ASD on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.discriminator import AdversarialLoss
from gimbal.learning.updates.distribution_matching import DistributionMatching
from gimbal.recipes.papers.distillation.dmd2 import dmd2
from gimbal.runtime.run import UpdateRun


def asd() -> UpdateRun:
    """ASD (arXiv:2511.01419): `dmd2` in three steps, and each step's sample shall also pass for the next step's, by a discriminator.

    In one step its samples are nearer to the data than those of `dmd2`; in two, three, and on the whole that is undecided
    (claims/README.md). Left out: streams whose first block has more steps. Not shown here: video models. No guidance.
    """
    run = dmd2()
    assert isinstance(run.update, DistributionMatching)
    return replace(
        run,
        sampling=replace(run.sampling, max_length=3),
        update=replace(run.update, adversarial=AdversarialLoss(real=None)),
        steps=48,
    )
