"""The model of the recipe ``kuhn``, which the package ships."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.games import Plays
from gimbal.ops import TokenMean
from gimbal.policies.token import Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import Run
from gimbal.workflows.demonstrated import Demonstrated

STEPS, PROMPTS = 30, 128


def tiny_player() -> Run:
    """gimbal-tiny-player: a little SFT of gimbal-tiny on random legal play of Kuhn and Leduc poker, so that it knows the actions only.

    Few steps, on purpose: the gradients of different states become alike with more of it.
    For another game: `gimbal train tiny_player tasks.games=tic_tac_toe`. Needs the extra `games`.
    """
    run = sft()
    return replace(
        run,
        workflow=Demonstrated(end=False),
        tasks=Plays(size=STEPS * PROMPTS),
        held_out=None,
        sampling=Sampling(max_length=1),
        aggregation=TokenMean(),
        prompts_per_step=PROMPTS,
        optimization=replace(run.optimization, learning_rate=3e-4, beta2=0.99, warmup_steps=5, decay="cosine"),
        steps=STEPS,
    )
