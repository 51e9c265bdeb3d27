"""DMD2 with its GAN loss, on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.discriminator import AdversarialLoss
from gimbal.learning.updates.distribution_matching import DistributionMatching
from gimbal.recipes.papers.distillation.dmd2 import dmd2
from gimbal.runtime.run import UpdateRun


def dmd2_gan() -> UpdateRun:
    """DMD2 (arXiv:2405.14867) with its GAN loss: `dmd2` whose samples shall also pass for real digits, before a discriminator.

    The real ones are scikit-learn's; your own come from a file (`update.adversarial.real.file`). The paper's discriminator is a head on
    fake's features; here it is a network of its own, so a learner step takes 1.8 times as long. That it helps is not shown
    (claims/README.md). Not shown here: text-to-image models of billions of parameters. No guidance.
    """
    run = dmd2()
    assert isinstance(run.update, DistributionMatching)
    return replace(run, update=replace(run.update, adversarial=AdversarialLoss()), steps=48)
