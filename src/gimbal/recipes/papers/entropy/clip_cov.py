from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.masks.covariance_mask import CovarianceMask
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def clip_cov() -> Run:
    """Clip-Cov (arXiv:2505.22617): GRPO that leaves out a few decisions with a high covariance with the advantage."""
    run = grpo()
    optimization = replace(run.optimization, minibatches=2)
    return replace(run, masks=(CovarianceMask(share=2e-3),), aggregation=TokenMean(), optimization=optimization)
