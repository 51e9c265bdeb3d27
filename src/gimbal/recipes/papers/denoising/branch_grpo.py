"""BranchGRPO on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import NodeNormalized
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.dance_grpo import dance_grpo
from gimbal.runtime.run import Run
from gimbal.workflows.fixed_splits import FixedSplits
from gimbal.workflows.single import SingleTurn


def branch_grpo() -> Run:
    """BranchGRPO (arXiv:2509.06040): groups are trees of paths; a step is evaluated once, and credited by all samples below it.

    From one start, 2 roots that split before steps 2, 3 and 5 make 16 samples with 104 evaluations of the network for 160: the paper's
    splits 0, 3, 6 and 9 of 20 steps, for ten. All steps but the last are sampled. Ours: no pruning. Not shown here: text-to-image
    models of billions of parameters, video, and judges of taste. No guidance.
    """
    run = dance_grpo()
    assert run.held_out is not None and isinstance(run.sampling, PathSampling)
    return replace(
        run,
        sampling=replace(run.sampling, window=0),
        workflow=FixedSplits(splits=(2, 3, 5), factor=2),
        advantage=NodeNormalized(),
        held_out=replace(run.held_out, workflow=SingleTurn()),
    )
