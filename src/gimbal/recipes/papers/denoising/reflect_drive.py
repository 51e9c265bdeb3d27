"""ReflectDrive-2 on gimbal-routes: a masked planner drafts a route over a grid and edits it."""

from __future__ import annotations

from dataclasses import replace

from gimbal.engines.unmasking import Unmasking
from gimbal.environments.grid_routes import STEPS, GridRoutes
from gimbal.learning.optimization import Optimization
from gimbal.policies.commits import MaskedSampling
from gimbal.policies.loading import ROUTES
from gimbal.policies.masked import MaskedLM
from gimbal.recipes.papers.denoising.masked_grpo import masked_grpo
from gimbal.rewards.remasked import Remasked
from gimbal.rewards.route_score import RouteScore
from gimbal.rewards.tokens_per_pass import TokensPerPass
from gimbal.runtime.run import HeldOut, Run


def reflect_drive() -> Run:
    """ReflectDrive-2 (arXiv:2605.04647): a planner drafts a route in parallel and edits it, and RL pays both for the edited route.

    gimbal-routes was first taught to edit: to restore the expert's route from one at another speed, or with a part beside itself. Here
    it writes the squares of a route over a grid with obstacles in one pass, nearly always all of them, and reads it once more: each
    square may be rewritten, by the same network, token for token. GRPO acts on the score of the final route, with one advantage on the
    tokens of the draft, on the choice of what is edited and on the edits. ``reward/remasked/mean`` counts edited squares. Left out: the
    planner's choice of its own goal, which a task gives here. On-policy except for staleness: one update per batch, at a ratio of 1, so
    the clip never acts. Not shown here: driving, its cameras and suites, and models of billions of parameters.
    """
    return replace(
        masked_grpo(),
        policy=MaskedLM(model=ROUTES),
        engine=Unmasking(slots=64),
        tasks=GridRoutes(seed=1),
        held_out=HeldOut(tasks=GridRoutes(seed=2, size=100), samples=1),
        sampling=MaskedSampling(max_length=STEPS, threshold=0.0, spread=0.1, reviews=1, keep=0.5, in_place=True),
        rewards=(RouteScore(), TokensPerPass(weight=0.0), Remasked()),
        prompts_per_step=32,
        num_generations=8,
        optimization=Optimization(learning_rate=3e-4, microbatch_tokens=65536),
        steps=20,
    )
