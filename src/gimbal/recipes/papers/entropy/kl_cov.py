from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.surrogates.covariance_kl import CovarianceKL
from gimbal.ops import TokenMean
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def kl_cov() -> Run:
    """KL-Cov (arXiv:2505.22617): replaces the clip by a KL on the decisions with the highest covariance with the advantage."""
    run = grpo()
    optimization = replace(run.optimization, minibatches=2)
    return replace(run, objective=CovarianceKL(), aggregation=TokenMean(), optimization=optimization)
