from __future__ import annotations

from dataclasses import replace

from gimbal.environments.hops import Hops
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.atomic_start import COMPOSED
from gimbal.runtime.run import Run


def atomic_to_composite() -> Run:
    """Atomic-to-Composite, stage 2 (arXiv:2512.01970): RL on pairs of relations across families that SFT taught apart; some held out.

    Start from the model of `atomic_start`: policy.model=runs/NAME/model. Published are knowledge and facts in the prompt as the two
    atomic skills; here both are knowledge. Whether RL is needed for this: claims/README.md.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = grpo()
    return replace(
        run,
        tasks=Hops(kinds=("across",)),
        held_out=replace(COMPOSED, engine=None, workflow=None, rewards=None),
        sampling=Sampling(max_length=4),
        rewards=COMPOSED.rewards or (),
        num_generations=16,
        optimization=replace(run.optimization, learning_rate=5e-4),
        steps=100,
    )
