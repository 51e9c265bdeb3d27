"""Runs whose rewards only measure: a distance is no pass rate, and a sum of nothing no score."""

from made import group, rollout

from gimbal.records import Task
from gimbal.report.console import Console, figures
from gimbal.report.metrics import rollout_metrics
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.rewards.one_of import OneOf
from gimbal.rewards.scoring import decided, weighed
from gimbal.rewards.tokens_per_pass import TokensPerPass

ROW = {
    "step": 1.0,
    "reward/mean": 0.0,
    "reward/data/mean": 2.0,
    "reward/data/distance": 2.0,
    "reward/data/coverage": 0.1,
}
BEFORE = {"eval/score": 0.0, "eval/greedy_score": 0.0, "eval/data/distance": 2.5, "eval/greedy_data/distance": 2.4}


def test_the_first_reward_decides_unless_it_is_a_distance_a_rate_or_a_logit():
    for measure in (DigitDistance(), TokensPerPass(), DigitClass(scale="logit")):
        assert not decided((measure, OneOf()))
        assert decided((OneOf(), measure))
    assert not weighed((DigitDistance(), TokensPerPass(weight=0.0)))
    assert weighed((DigitDistance(), OneOf())) and weighed(())


def test_a_step_without_a_deciding_reward_has_no_pass_rate_but_the_share_of_answers_cut_off():
    task = Task(id="t")
    metrics = rollout_metrics([group(task, rollout(task, scores={"data": 2.0}))], judged=False, answers=True)
    assert "pass_rate" not in metrics and "length/correct" not in metrics and "length/truncated_frac" in metrics


def test_the_lines_of_a_run_that_only_measures(capsys):
    console = Console(2, "dmd2", paid=False)
    console.step(ROW)
    console.before(BEFORE)
    line, before = capsys.readouterr().out.splitlines()
    assert "data/distance 2.000  data/coverage 0.100" in line and "reward" not in line and "pass rate" not in line
    assert "held-out data/distance (smaller is better) 2.500" in before and "score" not in before


def test_the_lines_of_a_run_that_is_judged_but_not_paid(capsys):
    Console(2, "opd", paid=False).step(ROW | {"pass_rate": 0.5})
    line = capsys.readouterr().out
    assert "data/distance 2.000" in line and "pass rate 0.500" in line and "reward" not in line
    assert list(figures(BEFORE | {"eval/pass@1": 0.5}, BEFORE | {"eval/pass@1": 0.5}))[:2] == [
        "eval/pass@1",
        "eval/data/distance",
    ]


def test_a_run_that_is_paid_shows_its_score_as_before():
    paid = BEFORE | {"eval/score": 0.4, "eval/pass@1": 0.5}
    assert list(figures(paid, paid)) == ["eval/pass@1", "eval/score", "eval/greedy_score"]
    assert list(figures({"eval/score": 0.0}, {"eval/score": 0.0})) == ["eval/score"]  # a return of 0
