from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.signed_outcome import SignedOutcome
from gimbal.recipes.papers.exploration.w_reinforce import w_reinforce
from gimbal.runtime.run import Run


def nsr() -> Run:
    """Negative sample reinforcement (arXiv:2506.01347): only wrong answers train, and what they lose goes to the other answers.

    One update a batch, at a ratio of 1, so the clip never acts; the authors take four.
    """
    return replace(w_reinforce(), advantage=SignedOutcome(positive=0.0))
