from __future__ import annotations

from dataclasses import replace

from gimbal.engines.native import Native
from gimbal.recipes.papers.rewards.ttrl import ttrl
from gimbal.runtime.run import Run
from gimbal.workflows.gated_tree import GatedTree
from gimbal.workflows.single import SingleTurn


def echo_ttrl() -> Run:
    """The tree of ECHO (arXiv:2602.02150) for RL without labels: rollouts fork where the policy is uncertain, those whose confidence
    falls are pruned, and what is left votes on the answer.

    All that is left trains. Windows and limits fit short sums. The paper's clip by confidence and its advantage by uncertainty are not
    used here. On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = ttrl()
    assert run.held_out is not None
    return replace(
        run,
        engine=Native(slots=256, precision="int8", entropy=True),
        workflow=GatedTree(window=4, low=0.35, falls=2, rises=2),
        held_out=replace(run.held_out, workflow=SingleTurn()),
        filters=(),
    )
