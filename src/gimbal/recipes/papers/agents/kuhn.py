from __future__ import annotations

from gimbal.advantages import SeatCentered
from gimbal.engines.native import Native
from gimbal.environments.games import Deals, Game
from gimbal.learning.method import Optimization
from gimbal.objectives import ClippedRatio, EntropyBonus
from gimbal.policies.token import CausalLM, Sampling
from gimbal.runtime.run import Run
from gimbal.workflows.self_play import SelfPlay


def kuhn() -> Run:
    """Self-play on Kuhn poker: one policy at both seats, clipped, with an entropy bonus (after MMD, arXiv:2206.05825).

    The bonus makes it converge: it pulls towards the uniform policy, and the clip towards the last one; without it self-play goes in
    circles. With 0.1 the exact optimum is 0.038 from an equilibrium (NashConv; the uniform policy is 0.917); two seeds reached 0.21
    and 0.15 in 65 CPU seconds. Starts from random weights: the model first learns which actions exist. Needs the extra `games`.
    """
    return Run(
        policy=CausalLM(fresh=True),
        engine=Native(slots=192, precision="float32"),
        workflow=SelfPlay(game=Game(name="kuhn_poker")),
        tasks=Deals(game="kuhn_poker"),
        sampling=Sampling(max_length=1),
        prompts_per_step=24,
        num_generations=16,
        max_staleness=0,
        objective=ClippedRatio(),
        advantage=SeatCentered(),
        regularisers=(EntropyBonus(coef=0.1),),
        optimization=Optimization(learning_rate=1e-3, decay="linear", epochs=3),
        steps=200,
        threads=1,
    )
