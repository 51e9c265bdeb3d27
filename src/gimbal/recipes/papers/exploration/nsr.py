from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.recipes.papers.exploration.w_reinforce import w_reinforce
from gimbal.runtime.run import Run


def nsr() -> Run:
    """Negative sample reinforcement (arXiv:2506.01347): trains on wrong answers only, which moves probability to the others.

    Here on-policy except for staleness: one update per batch, so the clip never acts. The authors take four updates.
    """
    return replace(w_reinforce(), advantage=SignedOutcome(positive=0.0))
