from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import LeafMean
from gimbal.recipes.papers.exploration.branched import branched
from gimbal.runtime.run import Run
from gimbal.workflows.branching import Branching


def treerl() -> Run:
    """TreeRL (arXiv:2506.11902): grows groups as trees; the reward of a segment is the mean of the leaves below it.

    Two trees of five leaves: M (T N + 1) leaves with M = 2 trunks, N = 2 forks and T = 2 branches at each; the paper's M is 6. Of the
    paper's rewards only the final answer is used; there is no KL to a reference.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        branched(),
        num_generations=10,
        workflow=Branching(trunks=2, places=2),
        advantage=LeafMean(baseline="both", damped=True),
    )
