"""The verdicts on the base set follow from the record, each arm is its recipe, and evaluations are counted as the rule says."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import base_set as claim
import base_set_page
import campaign

from gimbal import recipes
from gimbal.policies.denoiser import DenoiserPolicy
from gimbal.runtime.local import Trainer
from gimbal.runtime.run import Run

pytest.importorskip("diffusers")


def test_each_arm_is_its_recipe_with_the_same_reward_and_batch():
    runs = {arm: claim.run_of(arm, 3e-4, 3) for arm in claim.LEARNT}
    for arm, run in runs.items():
        own = recipes.function(arm)()
        kept = ("policy", "engine", "sampling", "tasks", "num_generations", "max_staleness", "ahead")
        assert all(getattr(run, name) == getattr(own, name) for name in kept)
        if isinstance(run, Run):
            assert (
                replace(own, optimization=replace(own.optimization, learning_rate=3e-4)).optimization
                == run.optimization
            )
            assert (run.objective, run.regularisers, run.advantage) == (own.objective, own.regularisers, own.advantage)
        assert run.rewards == runs["flow_grpo"].rewards and run.prompts_per_step == 4
    assert claim.run_of("base_ddim", 0.0, 3).policy == runs["ddpo"].policy != runs["flow_grpo"].policy


def rows(**ends):
    """All runs: a true reward that falls with the rate, and figures of .5, but for these: ARM=figure."""
    found = []
    for tuned in (claim.TUNED, claim.UNTRAINED):
        for arm in tuned.arms:
            jobs = [(rate, tuned.seed) for rate in tuned.rates] + [(tuned.rates[0], seed) for seed in tuned.seeds]
            for rate, seed in jobs:
                figure = ends.get(arm, 0.5) - rate + 0.001 * seed
                same = dict.fromkeys(base_set_page.FIGURES, figure)
                found.append({"arm": arm, "rate": rate, "seed": seed, **same, "steps": 6, "cpu": 5.0})
    return found


def test_verdicts_follow_the_rule():
    said = base_set_page.verdicts(rows(awm=0.9, gdro=0.1, base_ddim=0.1))
    verdicts = {line.split("*")[1]: line.split(" | ")[-1].strip(" |") for line in said.splitlines()[2:]}
    assert verdicts == dict.fromkeys(claim.LEARNT, "undecided") | {"awm": "yes", "gdro": "no: below", "ddpo": "yes"}


def test_arms_are_run_one_after_the_other_and_what_is_missing_is_said():
    parts = [part for part in claim.left([]) if part]
    assert [{arm for arm, *_ in part} for part in parts] == [{arm} for arm in (*claim.BASES, *claim.LEARNT)]
    some = [run for run in rows() if run["arm"] in ("flow_grpo", "base")]
    assert not any(job[0] in ("flow_grpo", "base") for part in claim.left(some) for job in part)
    text = base_set_page.section(some)
    assert text.count("seeds are missing") == 21 and "14 of 76 runs are recorded" in text


@pytest.mark.slow
@pytest.mark.parametrize("arm", claim.LEARNT)
def test_the_learner_evaluates_the_network_as_often_as_is_counted(arm, monkeypatch):
    spent, found = [], DenoiserPolicy.found

    def counting(policy, x_KD, *rest):
        spent.append(len(x_KD) * (3 if torch.is_grad_enabled() else 1))
        return found(policy, x_KD, *rest)

    run = claim.run_of(arm, 1e-3, 0)
    trainer = Trainer(run)
    trainer.begin()
    monkeypatch.setattr(DenoiserPolicy, "found", counting)
    _, _, batch = trainer.advance()
    counted = claim.learned(run, batch) + trainer.pipeline.generated["decisions"]
    trainer.close()
    witnesses = 64  # of delivery, at most
    assert counted <= sum(spent) <= counted + witnesses


def test_each_recorded_run_spent_the_budget():
    for run in campaign.load(claim.RECORD):
        assert run["arm"] in claim.BASES or run["steps"] >= 5, run
