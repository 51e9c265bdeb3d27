"""The model of the recipe ``leduc``, which the package ships."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.games import Plays
from gimbal.policies.loading import LEDUC
from gimbal.policies.token import CausalLM
from gimbal.recipes.papers.agents.leduc import GAME
from gimbal.recipes.papers.agents.tiny_player import PROMPTS, tiny_player
from gimbal.runtime.run import Run

STEPS = 100


def tiny_leduc() -> Run:
    """gimbal-tiny-leduc from scratch: SFT on random legal play of Leduc poker, so that it knows the actions only; 88,900 weights.

    Its weights are drawn with a deviation of 0.06, not 0.02, so that cards differ more from the first step on: the recipe leduc then
    needs fewer steps (docs/log.md). Twenty seconds of one core. Needs the extra `games`.
    """
    run = tiny_player()
    return replace(
        run,
        policy=CausalLM(model=LEDUC, fresh=True),
        tasks=Plays(games=(GAME,), size=STEPS * PROMPTS),
        optimization=replace(run.optimization, learning_rate=3e-3),
        steps=STEPS,
    )
