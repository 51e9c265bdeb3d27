"""The safety test: what it lets pass over many repetitions, what pessimism in training buys, and that tasks decide once."""

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from gimbal import config
from gimbal.environments.dataset import Rows
from gimbal.ops.confidence import student_width
from gimbal.ops.seeds import philox
from gimbal.recipes.papers.rewards.hc_rlhf import hc_rlhf
from gimbal.records import Group, Task
from gimbal.report.files import JsonLines
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.scoring import Broken
from gimbal.runtime.safety import SafetyTest, certify

sys.path.insert(0, str(Path(__file__).parent))
from small import rows, small_run

REPETITIONS = 1000
CHANCE = 4 * math.sqrt(0.1 * 0.9 / REPETITIONS)


def accepted(test, draw):
    """The share of repetitions in which the costs drawn pass."""
    rng = philox("safety", test.bound)
    return np.mean([test.judge(draw(rng).astype(float).tolist()).passed for _ in range(REPETITIONS)])


@pytest.mark.parametrize("bound", ["binomial", "hoeffding"])
@pytest.mark.parametrize(("limit", "tasks"), [(0.02, 60), (0.1, 60), (0.3, 200)])
def test_a_policy_just_past_the_limit_passes_in_a_share_of_delta_at_most(bound, limit, tasks):
    test = SafetyTest(limit=limit, bound=bound)
    assert accepted(test, lambda rng: rng.binomial(1, limit + 1e-9, tasks)) <= 0.1 + CHANCE


def test_with_normal_costs_students_test_passes_it_in_just_that_share():
    test = SafetyTest(limit=0.0, bound="student")
    assert accepted(test, lambda rng: rng.normal(1e-9, 3.0, 30)) == pytest.approx(0.1, abs=CHANCE)


def test_without_pessimism_in_training_a_borderline_policy_rarely_passes_and_with_it_mostly():
    """A policy trained to mean + inflation x width x std = limit: by the symmetry of t it passes in about delta, 1/2, 1 - delta."""
    tasks, std = 400, 2.0
    width = student_width(tasks, 0.1) * std
    shares = [
        accepted(
            SafetyTest(limit=1.0, bound="student"),
            lambda rng, inflation=inflation: rng.normal(1.0 - inflation * width, std, tasks),
        )
        for inflation in (0.0, 1.0, 2.0)
    ]
    assert shares == pytest.approx([0.1, 0.5, 0.9], abs=2 * CHANCE)


def test_rare_costs_pass_students_test_but_not_the_exact_one():
    """Nothing seen in 50 responses: student takes the cost for 0, the binomial bound for as much as 4.5 per cent."""
    costs = [0.0] * 50
    assert SafetyTest(limit=0.01, bound="student").judge(costs).passed
    exact = SafetyTest(limit=0.01).judge(costs)
    assert not exact.passed and exact.upper == pytest.approx(1 - 0.1 ** (1 / 50))


def test_an_infinite_limit_passes_everything():
    for bound in ("binomial", "hoeffding", "student"):
        assert SafetyTest(limit=math.inf, bound=bound).judge([1.0, 1.0]).passed


def test_one_response_proves_nothing_to_student():
    verdict = SafetyTest(limit=1e9, bound="student").judge([0.0])
    assert not verdict.passed and verdict.upper == math.inf


def test_costs_that_a_bound_is_not_made_for_are_refused():
    with pytest.raises(ValueError, match="hoeffding"):
        SafetyTest().judge([0.5])
    with pytest.raises(ValueError, match="widen low and high"):
        SafetyTest(bound="hoeffding").judge([0.5, 3.0])
    assert SafetyTest(bound="hoeffding", high=4.0).judge([0.5, 3.0]).mean == 1.75


def test_senseless_tests_are_refused():
    with pytest.raises(ValueError, match="false pass"):
        SafetyTest(delta=0.0)
    with pytest.raises(ValueError, match="lower skip"):
        SafetyTest(tasks=rows(3), skip=3)
    with pytest.raises(ValueError, match="low below high"):
        SafetyTest(low=1.0)


@dataclass(frozen=True, kw_only=True)
class Harm(AbstractReward):
    """1 where the prompt asks for it; silent or broken where the prompt says so."""

    name: str = "harm"

    def __call__(self, group: Group) -> list[float | None]:
        kind = group.task.prompt.split()[0]
        return [{"bad": 1.0, "none": None, "broken": Broken(0.0)}.get(kind, 0.0) for _ in group.rollouts]


@dataclass(frozen=True, kw_only=True)
class Confession(Harm):
    """Asks the policy whether its answer was harmful."""

    def follow_ups(self, group: Group) -> list[Task]:
        return [group.task]


def prompts(*kinds):
    return Rows(rows=[{"prompt": f"{kind} {n} + 1 =\n"} for n, kind in enumerate(kinds)])


def test_certify_draws_one_response_a_task_and_spends_the_tasks(tmp_path):
    run = small_run()
    test = SafetyTest(
        tasks=prompts("bad", "bad", "good", "good", "bad", "none", "broken"), cost=Harm(), skip=2, limit=0.9
    )
    ledger = tmp_path / "ledger.jsonl"
    verdict = certify(run, test, ledger)
    # What is not judged, and what broke the scorer, counts as harm: 3 of 5.
    assert (verdict.tasks, verdict.mean) == (5, 0.6) and verdict == replace(test, skip=0).judge(
        [0.0, 0.0, 1.0, 1.0, 1.0]
    )
    (row,) = JsonLines(ledger).read()
    assert len(row["spent"]) == 5 and row["passed"] == verdict.passed and row["limit"] == 0.9
    with pytest.raises(ValueError, match="proves nothing"):
        certify(run, replace(test, skip=4), ledger)
    assert certify(run, replace(test, skip=0, tasks=prompts("good", "good")), ledger).mean == 0
    assert len(JsonLines(ledger).read()) == 2
    ledger.write_bytes(ledger.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"ledger\.jsonl is damaged"):
        certify(run, replace(test, skip=0, tasks=prompts("good", "good", "good")), ledger)


def test_certify_refuses_the_tasks_of_training_and_a_judge_in_its_own_cause(tmp_path):
    run = small_run()
    with pytest.raises(ValueError, match="uses training tasks"):
        certify(run, SafetyTest(tasks=run.tasks, cost=Harm(), skip=0), tmp_path / "ledger.jsonl")
    with pytest.raises(ValueError, match="would judge itself"):
        certify(run, SafetyTest(tasks=prompts("good"), cost=Confession(), skip=0), tmp_path / "ledger.jsonl")
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_run_on_tasks_of_the_users_is_certified_on_tasks_and_a_cost_of_theirs(tmp_path):
    """The default test would judge its sums, which such a run was never for."""
    run, ledger = replace(small_run(), tasks=prompts("good")), tmp_path / "ledger.jsonl"
    fresh, wanted = prompts("bad", "good"), r"SafetyTest\(tasks=fresh.jsonl, cost=mine.py:harm\)"
    with pytest.raises(ValueError, match="own tasks and cost are about .*, but this run trains on Rows: .*" + wanted):
        certify(run, SafetyTest(), ledger)
    with pytest.raises(ValueError, match="own cost is about"):
        certify(run, SafetyTest(tasks=fresh), ledger)
    assert certify(run, SafetyTest(tasks=fresh, cost=Harm(), limit=1.0), ledger).tasks == 2
    (tmp_path / "mine.py").write_text("def harm(completions): return [0.0 for _ in completions]\n")
    (tmp_path / "fresh.jsonl").write_text('{"prompt": "1 + 1 ="}\n')
    typed = f"SafetyTest(tasks={tmp_path}/fresh.jsonl, cost={tmp_path}/mine.py:harm)"
    test = config.read(config.Text(typed), SafetyTest, "--certify")
    assert (len(test.tasks), test.cost.name, test.left_out) == (1, "harm", 0)


def test_the_recipe_trains_for_the_test_that_is_there_by_default():
    (constraint,) = [shape for shape in hc_rlhf().reward_shaping if hasattr(shape, "tests")]
    (rule,) = hc_rlhf().controllers.values()
    test = SafetyTest()
    assert (constraint.tests, constraint.delta, rule.limit) == (len(test.tasks) - test.left_out, test.delta, test.limit)
    assert test.cost in hc_rlhf().rewards
