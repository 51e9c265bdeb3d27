"""The arms of the claim on shared rollouts differ in one thing, peers differ in their seed alone, and verdicts follow the record."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import swarm
import tuned_page

from gimbal.recipes.papers.exploration.sapo import sapo
from gimbal.runtime.compose import check


def test_arms_differ_in_what_is_shared_or_in_how_much_is_drawn():
    for kind in swarm.KINDS:
        plain, double = (swarm.run_of((f"{kind}, {arm}", 3e-4, 3)) for arm in ("plain", "double"))
        one, other = swarm.peers((f"{kind}, swarm", 3e-4, 3), "somewhere")
        assert double == replace(plain, prompts_per_step=16)
        assert one == replace(plain, store=one.store, correction=sapo().correction)
        assert other == replace(one, seed=1003, store=replace(one.store, name="b", peers=("a",)))
        recipe = sapo().store
        assert one.store == replace(recipe, directory="somewhere", name="a", peers=("b",)), "the recipe's settings"
        for run in (plain, double, one, other):
            check(run)


def test_verdicts_follow_the_rule():
    def runs(**means):
        def mean(arm):
            return means.get(arm.split(", ")[1], 0.1)

        rows = [(arm, rate, 100, rate) for arm in swarm.TUNED.arms for rate in swarm.TUNED.rates]
        rows += [(arm, 1e-3, seed, mean(arm) + 0.001 * seed) for arm in swarm.TUNED.arms for seed in range(5)]
        return [dict(zip(("arm", "rate", "seed", "mean"), row, strict=True)) for row in rows]

    assert tuned_page.rule(swarm, runs(swarm=0.2)).count("| yes |") == len(swarm.KINDS)
    assert tuned_page.rule(swarm, runs(swarm=0.2, double=0.3)).count("| yes |") == 2 * len(swarm.KINDS)
    assert tuned_page.rule(swarm, runs()).count("| undecided |") == 4


def test_each_recorded_run_has_its_marks_and_only_a_swarm_took_of_a_peer():
    for run in campaign.load(swarm.RECORD):
        assert len(run["marks"]) == 4 and (run["taken"] > 0) == run["arm"].endswith("swarm"), run
