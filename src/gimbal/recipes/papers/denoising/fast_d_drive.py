"""Fast-dDrive's frozen scaffold on gimbal-routes."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.grid_routes import STEPS
from gimbal.policies.commits import MaskedSampling
from gimbal.recipes.papers.denoising.reflect_drive import reflect_drive
from gimbal.rewards.route_score import RouteScore
from gimbal.rewards.tokens_per_pass import TokensPerPass
from gimbal.runtime.run import Run


def fast_d_drive() -> Run:
    """Fast-dDrive's scaffold (arXiv:2605.23163): cells that are known are given, and a planner fills in the others in parallel.

    There the structure of an answer in JSON is frozen; here the last square of a route, which is the goal. A given cell takes no pass,
    has no log-probability and is not trained on, and the other cells see it from the first pass. GRPO acts on the score of the route;
    published is a way to generate, without RL. Left out: the mean of several plans, which here is no better than one (docs/log.md), a
    cache of shared prefixes, and speculative decoding between sections. On-policy except for staleness: one update per batch, at a
    ratio of 1, so the clip never acts. Not shown here: driving, its cameras and suites, and models of billions of parameters.
    """
    return replace(
        reflect_drive(),
        sampling=MaskedSampling(max_length=STEPS, threshold=0.0, scaffold="arrival"),
        rewards=(RouteScore(), TokensPerPass(weight=0.0)),
    )
