"""The arms of the claim on votes differ in how rollouts are drawn and which train, and its record shows the tree where it is."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import tuned_page
import votes

from gimbal.runtime.compose import check
from gimbal.workflows.gated_tree import GatedTree


def test_arms_differ_in_how_rollouts_are_drawn_and_which_train():
    tree, alone, ttrl = (votes.run_of((arm, 1e-4, 3)) for arm in votes.TUNED.arms)
    assert isinstance(tree.workflow, GatedTree) and alone == replace(tree, workflow=alone.workflow)
    assert ttrl == replace(alone, engine=ttrl.engine, filters=ttrl.filters) and ttrl.filters
    assert all(reward.weight == 0 for reward in tree.rewards if reward.name == "reasoning"), (
        "no reward reads the answer"
    )
    for run in (tree, alone, ttrl):
        check(run)


def test_verdicts_follow_the_rule():
    def runs(**means):
        rows = [(arm, rate, 100, rate) for arm in votes.TUNED.arms for rate in votes.TUNED.rates]
        rows += [(arm, 3e-4, seed, means.get(arm, 0.1) + 0.001 * seed) for arm in votes.TUNED.arms for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "mean"), row, strict=True)) for row in rows]

    assert tuned_page.rule(votes, runs(tree=0.2)).count("| yes |") == 2
    assert tuned_page.rule(votes, runs(alone=0.2)).count("| yes |") == 1
    assert tuned_page.rule(votes, runs()).count("| undecided |") == 3


def test_only_the_tree_prunes():
    for run in campaign.load(votes.RECORD):
        assert (run["pruned"] > 0) == (run["arm"] == votes.TREE) and len(run["marks"]) == votes.MARKS, run
