from __future__ import annotations

from dataclasses import replace

from gimbal.objectives.regularisers.observation_likelihood import ObservationLikelihood
from gimbal.ops import TokenMean
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def echo() -> Run:
    """ECHO (arXiv:2605.24517), for an agent in a terminal: the policy also learns to predict what the terminal says.

    At the published coefficient it learned more slowly in this terminal than without the loss (claims/README.md).
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(terminal(), regularisers=(ObservationLikelihood(),), aggregation=TokenMean())
