from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.state_predicted import StatePredicted
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.runtime.run import Run


def dps() -> Run:
    """DPS (arXiv:2603.10887): GRPO on the tasks that a per-task hidden Markov model expects to be partly solved.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), **AGAIN, curriculum=StatePredicted())
