from __future__ import annotations

from dataclasses import replace

from gimbal.engines.native import Native
from gimbal.recipes.papers.rewards.ttrl import ttrl
from gimbal.runtime.run import Run
from gimbal.workflows.gated_tree import GatedTree
from gimbal.workflows.single import SingleTurn


def echo_ttrl() -> Run:
    """ECHO's tree (arXiv:2602.02150) without labels: rollouts fork where uncertain, falling ones are pruned, the rest vote.

    A rollout forks where the policy is uncertain and is pruned where its confidence falls; what is left votes on the answer and
    trains. Windows and limits fit short sums. The paper's clip by confidence and its advantage by uncertainty are not used here.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
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
