from __future__ import annotations

from gimbal.advantages import SeatCentered
from gimbal.engines.native import Native
from gimbal.environments.games import Deals, Game
from gimbal.learning.optimization import Optimization
from gimbal.objectives import ClippedRatio
from gimbal.objectives.regularisers.exact_kl import ExactKL
from gimbal.policies.loading import PLAYER
from gimbal.policies.token import CausalLM, Sampling
from gimbal.runtime.run import Run
from gimbal.workflows.self_play import SelfPlay


def kuhn() -> Run:
    """Self-play on Kuhn poker: one policy at both seats, pulled towards the average of its past (a moving magnet, arXiv:2206.05825).

    Five seeds end at a NashConv of 0.067 to 0.075 in 200 seconds of the processor (the uniform policy: 0.917; claims/kuhn.py). A weaker
    pull lets self-play go in circles; a reference that is set to the policy at a few steps keeps the noise of that step, and ended at
    0.15 in the median and 0.22 at worst. Starts from gimbal-tiny-player, which plays legal actions of Kuhn poker at random (of Leduc
    poker with 0.85 of its probability). Needs the extra `games`.
    """
    return Run(
        policy=CausalLM(model=PLAYER),
        engine=Native(slots=384, precision="float32"),
        workflow=SelfPlay(game=Game(name="kuhn_poker")),
        tasks=Deals(game="kuhn_poker"),
        sampling=Sampling(max_length=1),
        prompts_per_step=64,
        num_generations=16,
        max_staleness=0,
        objective=ClippedRatio(),
        advantage=SeatCentered(),
        regularisers=(ExactKL(coef=0.4),),
        reference_rate=0.005,
        optimization=Optimization(learning_rate=3e-5, decay="linear", max_grad_norm=100.0, epochs=2),
        steps=300,
        threads=1,
    )
