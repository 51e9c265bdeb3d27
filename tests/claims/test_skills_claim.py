"""The verdicts on revised skills follow from their record, and arms differ in one thing."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))

import campaign
import skills
import tuned_page


def test_one_thing_at_a_time_differs_between_arms_of_skills():
    both, within, blind, episode = (skills.run_of(arm, 1e-3, 3) for arm in skills.TUNED.arms)
    assert both == replace(within, advantage=both.advantage) and within.advantage == replace(both.advantage, across=0.0)
    assert both == replace(blind, workflow=both.workflow) and "{score}" not in blind.workflow.past
    assert both == replace(episode, advantage=both.advantage) and isinstance(episode.advantage, skills.LastOutcome)
    assert blind.workflow == replace(both.workflow, past=blind.workflow.past)


def test_the_verdict_on_skills_follows_the_rule():
    def runs(**apart):
        rows = [(arm, rate, 100, -rate) for arm in skills.TUNED.arms for rate in skills.TUNED.rates]
        rows += [
            (arm, 5e-4, seed, 0.3 + 0.01 * seed + apart.get(arm, 0.0))
            for arm in skills.TUNED.arms
            for seed in skills.TUNED.seeds
        ]
        return [dict(zip(("arm", "rate", "seed", "third"), row, strict=True)) for row in rows]

    told = tuned_page.rule(skills, runs(both=0.2, within=0.2, episode=0.2))
    assert told.count("| yes |") == 1 and told.count("| undecided |") == 2
    assert "seeds are missing" in tuned_page.rule(skills, runs(both=0.2)[:-1])
    assert [len(part) for part in skills.TUNED.left([])] == [8, 0]


def test_the_record_of_skills_is_whole():
    recorded = campaign.load(skills.RECORD)
    assert not list(skills.TUNED.left(recorded))[1] and len(recorded) == skills.TUNED.whole
    for run in recorded:
        assert len(run["curve"]) == skills.STEPS
        assert abs(run["third"] - sum(step[2] for step in run["curve"][-skills.LAST :]) / skills.LAST) < 1e-4
