"""GNDM on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.learning.updates.distribution_matching import DistributionMatching
from gimbal.recipes.papers.distillation.dmd2 import dmd2
from gimbal.runtime.run import UpdateRun


def gndm() -> UpdateRun:
    """GNDM (arXiv:2603.28460): `dmd2` whose difference of scores is normalised by the group of a task, as GRPO normalises rewards.

    All samples of a task are noised to one time, and share a denominator. Left out: further rewards beside it, and reuse by importance
    sampling: the last step of a path has no density, so the form for a policy gradient cannot move it. Not shown here: text-to-image
    models of billions of parameters. No guidance.
    """
    run = dmd2()
    assert isinstance(run.update, DistributionMatching)
    return replace(run, update=replace(run.update, by_group=True))
