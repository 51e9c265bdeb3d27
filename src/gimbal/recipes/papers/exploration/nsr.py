from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.recipes.papers.exploration.w_reinforce import w_reinforce
from gimbal.runtime.run import Run


def nsr() -> Run:
    """Negative sample reinforcement (arXiv:2506.01347): only wrong answers train, and what they lose goes to the other answers.

    Here on-policy but for staleness: one update a batch, so the clip never acts. The authors take four updates.
    """
    return replace(w_reinforce(), advantage=SignedOutcome(positive=0.0))
