from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.alternating import Alternating
from gimbal.environments.demonstrations import training_tasks
from gimbal.learning.proximal.snapshots import Snapshots
from gimbal.objectives.surrogates.gaussian_trust import GaussianTrust
from gimbal.ops import TokenMean
from gimbal.recipes.core.gspo import gspo
from gimbal.runtime.run import Run


def gtr() -> Run:
    """GTR (arXiv:2606.03382): a Gaussian pull towards four recent policies; sums and spelling alternate every ten steps."""
    run = gspo()
    return replace(
        run,
        tasks=Alternating(sets=(training_tasks(), training_tasks("spell_backward")), period=10 * run.prompts_per_step),
        curriculum=Epochs(shuffle=False),
        objective=GaussianTrust(clip_low=0.4, clip_high=0.4),
        anchor=Snapshots(every=run.optimization.minibatches),
        aggregation=TokenMean(),
    )
