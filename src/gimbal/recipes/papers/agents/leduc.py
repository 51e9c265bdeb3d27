from __future__ import annotations

from dataclasses import replace

from gimbal.environments.games import Deals, Game
from gimbal.objectives.regularisers.exact_kl import ExactKL
from gimbal.ops import SequenceSum
from gimbal.policies.loading import LEDUC
from gimbal.policies.token import CausalLM
from gimbal.recipes.papers.agents.kuhn import kuhn
from gimbal.runtime.run import Run
from gimbal.workflows.self_play import SelfPlay

GAME = "leduc_poker(suit_isomorphism=True)"


def leduc() -> Run:
    """Self-play on Leduc poker: the recipe kuhn with a small model that tells cards apart, and a stronger pull.

    The game is OpenSpiel's with cards of one rank alike, which are worth the same: 288 states instead of 936. Starts from
    gimbal-tiny-leduc, which plays legal actions at random. With a reference that follows four times as fast, NashConv falls below 1 and
    rises to 2 again, even on exact gradients (docs/log.md). Model and settings are ours. How near it comes to an equilibrium is in
    claims/README.md (the uniform policy has a NashConv of 4.747). Needs the extra `games`.
    """
    run = kuhn()
    return replace(
        run,
        policy=CausalLM(model=LEDUC),
        workflow=SelfPlay(game=Game(name=GAME)),
        tasks=Deals(game=GAME),
        aggregation=SequenceSum(),  # the policy gradient: how many decisions a seat has is up to its actions
        regularisers=(ExactKL(coef=2.0),),
        reference_rate=0.0075,  # after each of the 4 updates of a step
        optimization=replace(run.optimization, learning_rate=3e-3, epochs=4),
        prompts_per_step=128,  # deals
        steps=160,
    )
