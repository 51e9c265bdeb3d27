from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.replay.successes import Successes
from gimbal.objectives import ClippedRatio, TruncatedWeight
from gimbal.recipes.papers.agents.terminal import terminal
from gimbal.runtime.run import Run


def arpo() -> Run:
    """ARPO's replay (arXiv:2505.16282), in a terminal: a failed group gets a past success on its task, of 150 seen again and again.

    Replayed episodes have importance weights, truncated at 2, where the paper treats them as new. On-policy except for staleness
    and replay: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        terminal(),
        store=Successes(),
        objective=ClippedRatio(clip_low=0.2, clip_high=0.3),
        correction=TruncatedWeight(cap=2.0),
    )
