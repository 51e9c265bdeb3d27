from __future__ import annotations

from gimbal.advantages import SeatCentered
from gimbal.engines.native import Native
from gimbal.environments.games import Deals, Game
from gimbal.learning.method import Optimization
from gimbal.objectives import ClippedRatio
from gimbal.objectives.regularisers.exact_kl import ExactKL
from gimbal.policies.token import CausalLM, Sampling
from gimbal.runtime.run import Run
from gimbal.workflows.self_play import SelfPlay


def kuhn() -> Run:
    """Self-play on Kuhn poker: one policy at both seats, with a pull to a policy that is renewed (R-NaD, arXiv:2206.15378).

    The pull (an exact KL, after MMD, arXiv:2206.05825) is what makes it converge: without it self-play goes in circles. The optimum
    under it is the nearer to an equilibrium the weaker it is or the nearer what it pulls to; so it stays strong, and what it pulls
    to follows: the first policy, then those of steps 100, 200 and 300. Fresh weights: the model first learns which actions there
    are. Needs the extra games.
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
        regularisers=(ExactKL(coef=0.4),),
        reference_resets=(100, 200, 300),
        optimization=Optimization(learning_rate=5e-4, decay="linear", epochs=2),
        steps=400,
        threads=1,
    )
