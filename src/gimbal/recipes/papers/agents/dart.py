from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.successes import Successes
from gimbal.objectives import KLPenalty, SequenceRatio, TruncatedWeight
from gimbal.objectives.masks.step_entropy import StepEntropy
from gimbal.recipes.core.gspo import gspo
from gimbal.recipes.papers.exploration.arpo import arpo
from gimbal.runtime.run import Run


def dart() -> Run:
    """DART's curation (arXiv:2509.23866), in a terminal: adds a stored success to a failed group, trains the turns of highest entropy.

    Four fifths of the turns train, and weights for the gap to the sampler are capped at 1.
    Uses arpo's tasks. Left out: fewer rollouts and shorter episodes for tasks that go well. The paper clips GSPO's ratio at .1 and .28,
    which it never reaches here; these are GSPO's own bounds.
    """
    run = arpo()
    return replace(
        run,
        store=Successes(add=True),
        masks=(StepEntropy(),),
        objective=SequenceRatio(clip_low=3e-3, clip_high=4e-3),
        correction=TruncatedWeight(cap=1.0),
        regularisers=(KLPenalty(coef=0.1),),
        optimization=replace(run.optimization, minibatches=gspo().optimization.minibatches),
    )
