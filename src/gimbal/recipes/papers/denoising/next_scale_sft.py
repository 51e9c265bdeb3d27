"""Teacher forcing of a policy that draws a digit scale after scale: how gimbal-scales was made."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import ReturnToGo
from gimbal.engines.offline import Offline
from gimbal.engines.unmasking import Unmasking
from gimbal.learning.optimization import Optimization
from gimbal.objectives.surrogates.likelihood import Likelihood
from gimbal.ops import TokenMean
from gimbal.recipes.papers.denoising.next_scale import next_scale
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.in_scales import InScales
from gimbal.workflows.single import SingleTurn


def next_scale_sft() -> Run:
    """SFT of a scale-wise autoregressive policy on real digits by teacher forcing: each scale after the true coarser ones.

    The evaluation draws freely, each scale after the policy's own. gimbal-scales was made by this recipe from the network that
    benchmarks/scales_base.py writes: 400 steps at a rate of 4e-3, then 100 at 1e-3, two CPU minutes. Not shown here: tokens of patches,
    and pictures of many pixels.
    """
    run, held_out = next_scale(), next_scale().held_out
    assert held_out is not None
    return replace(
        run,
        engine=Offline(),
        workflow=InScales(),
        held_out=HeldOut(
            tasks=held_out.tasks, samples=1, engine=Unmasking(), workflow=SingleTurn(), rewards=run.rewards
        ),
        rewards=(),
        prompts_per_step=60,
        num_generations=1,
        objective=Likelihood(),
        regularisers=(),
        advantage=ReturnToGo(),
        aggregation=TokenMean(),
        optimization=Optimization(learning_rate=3e-4, microbatch_tokens=65536),
        steps=50,
    )
