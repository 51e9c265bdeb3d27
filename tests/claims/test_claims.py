"""The claim's arms differ in what they are named after, its verdicts follow from the record, and the page says what the record says."""

import re
import sys
from dataclasses import fields, replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import pytest
import torch

CLAIMS = Path(__file__).parent.parent.parent / "claims"
sys.path.insert(0, str(CLAIMS))

import campaign
import dose
import dose_page
import grid
import grid_apart
import grid_page
import holds
import page

from gimbal.advantages import DiscrepancyPenalty
from gimbal.environments.demonstrations import held_out_tasks
from gimbal.records import TrainBatch
from gimbal.runtime.compose import check
from gimbal.runtime.simulate.price import price

RUNS = dose.load()
CELLS = [(stage.question, stage.age, arm, stage.rate) for stage in dose.STAGES for arm in stage.arms]


def test_the_page_is_what_the_record_says():
    written = {name: (CLAIMS / name).read_text(encoding="utf-8") for name in page.pages()}
    assert written == page.pages(), "run: python claims/page.py"


def test_every_question_of_two_arms_stands_in_the_first_table_as_in_its_section():
    written = page.pages()["README.md"]
    glance, rest = written.split("## Stale data, ", 1)
    below = [
        line
        for line in rest.splitlines()
        if re.fullmatch(r"\| .*: \*.*\* (above|beside) \*.*\* \| [^|]* \| [^|]* \|", line)
    ]
    assert len(below) > 80
    absent = [line for line in below if line.removeprefix("|") not in glance]
    assert len(absent) < 10  # each asks another the other way round, and has its difference with the other sign
    for line in absent:
        one, other, least, most = re.search(r"\*(.*)\* above \*(.*)\* \|[^(]*\((\S+) to (\S+)\)", line).groups()
        turned = f"*{other}* above *{one}*"
        assert any(turned in told and f"({-float(most):.4g} to {-float(least):.4g})" in told for told in below), line


def test_the_first_table_names_recipes_that_are_there():
    rows = [line.split(" | ") for line in page.pages()["README.md"].splitlines() if line.startswith("| [")]
    named = {row[0].split("](")[0].removeprefix("| ["): row[1] for row in rows}
    assert named["Goals that were reached, for those that were wanted"] == "`gcsl`, `her`, `sac`"
    assert sum(bool(recipes) for recipes in named.values()) > len(named) / 2


def test_arms_of_a_stage_differ_in_nothing_but_what_they_are_named_after():
    for stage in dose.STAGES:
        question, age, arms = stage.question, stage.age, stage.arms
        runs = [dose.run_of(question, dose.QUESTIONS[question][arm], age, 1e-4, 0) for arm in arms]
        for run in runs:
            check(run)
            assert run.max_staleness == age and run.prompts_per_step * run.num_generations == 64
            for item in fields(run):
                if item.name not in ("anchor", "objective", "correction", "shaping", "controllers", "optimization"):
                    assert vars(run)[item.name] == vars(runs[0])[item.name], item.name
            updates = run.optimization.minibatches
            assert replace(run.optimization, minibatches=1) == replace(runs[0].optimization, minibatches=1)
            assert updates == (1 if arms[runs.index(run)] in ("plain", "weighted") else dose.UPDATES)


def test_no_cell_stands_in_two_stages():
    assert len(set(CELLS)) == len(CELLS)


def batch() -> TrainBatch:
    half, quarter = torch.tensor(0.5).log(), torch.tensor(0.25).log()
    return TrainBatch(
        mask_NS=torch.tensor([[True, True], [True, False]]),
        proximal_NS=torch.stack([half, half]).expand(2, 2),
        behavior_NS=torch.stack([torch.stack([quarter, half]), torch.stack([half, half])]),
        advantage_NS=torch.tensor([[1.0, 1.0], [-1.0, 0.0]]),
        group_N=torch.tensor([0, 0]),
    )


def test_the_price_of_a_token_is_the_penalty_and_of_a_rollout_its_sum_less_the_groups_mean():
    b = batch()
    assert torch.allclose(dose.Price(strength=2.0)(b), DiscrepancyPenalty(strength=2.0)(b))
    # The rollouts' sums are 0.25 and 0, their mean 0.125.
    expected = torch.tensor([[1 - 0.25, 1 - 0.25], [-1 + 0.25, 0.0]])
    assert torch.allclose(dose.Price(strength=2.0, rollout=True)(b), expected)


def test_the_price_is_measured_against_the_anchor_of_its_own():
    b = batch().with_columns({"priced_NS": batch().behavior_NS})
    assert torch.equal(dose.Price(strength=2.0)(b), b.advantage_NS)
    assert dose.Price()(batch())[0, 0] < 1, "the clip's anchor and the sampler differ"
    assert dose.Price().report(b)["price/gap"] == 0 and dose.Price().report(batch())["price/gap"] == pytest.approx(
        0.25 / 3
    )


def test_five_against_five_differ_only_if_all_of_one_lie_above_all_of_the_other():
    low, high = [0.1, 0.2, 0.3, 0.4, 0.5], [0.6, 0.7, 0.8, 0.9, 1.0]
    assert dose.p_value(low, high) < dose.P
    assert dose.p_value([*low[:4], 0.65], high) > dose.P


def test_the_interval_of_a_shift_holds_the_inner_differences_and_its_coverage_is_that_of_the_ranks():
    one, other = [0.1, 0.2, 0.3, 0.4, 0.5], [0.0, 0.01, 0.02, 0.03, 0.04]
    assert campaign.shift(one, other) == pytest.approx((0.28, 0.08, 0.48))
    # A shift lies below the third difference if two or fewer pairs do: so many of the 252 ways to mix 5 and 5.
    few = sum(sum(place - i for i, place in enumerate(places)) <= 2 for places in combinations(range(10), 5))
    assert 1 - 2 * few / 252 == pytest.approx(0.968, abs=5e-4)


def test_no_arm_is_best_at_an_end_of_the_grid():
    for question, age, arm in {(run["question"], run["age"], run["arm"]) for run in RUNS}:
        best = dose.best(RUNS, question, age, arm)
        assert best is None or dose.RATES[0] < best < dose.RATES[-1], (question, age, arm)


def tried(*scores: float) -> list[dict[str, object]]:
    head = {"question": "age", "arm": "clip", "age": 4, "seed": dose.TUNING}
    return [head | {"rate": rate, "score": score} for rate, score in zip(dose.RATES, scores, strict=False)]


def test_the_best_rate_is_known_when_all_were_tried_and_the_largest_stable_one_has_none_that_collapsed_below_it():
    assert dose.best(tried(0.5, 0.9, 0.8), "age", 4, "clip") is None
    assert dose.best(tried(0.5, 0.9, 0.8, 0.4), "age", 4, "clip") == 3e-5
    assert dose.stable(tried(0.5, 0.9, 0.3, 0.4), "age", 4, "clip") == 3e-5
    assert dose.stable(tried(0.1, 0.9, 0.3, 0.4), "age", 4, "clip") is None


def test_a_cell_is_tuned_before_its_fresh_seeds_are_run_and_nothing_is_run_twice():
    runs: list[dict[str, object]] = []
    for cell in dose.left(runs):
        key = dict(zip(dose.KEY, cell, strict=True))
        assert key["seed"] == dose.TUNING or key["rate"] == 3e-5 or (key["question"], key["rate"]) == ("price", 1e-4)
        runs.append(key | {"score": 0.9 if key["rate"] == 3e-5 else 0.5})
    assert len(runs) == dose.whole() and not list(dose.left(runs))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: "-".join(str(run[name]) for name in dose.KEY))
def test_in_every_recorded_run_the_mechanism_was_at_work(run):
    assert run["oldest"] == run["age"]
    assert (run["clipped"] > 0) == (run["arm"] not in ("plain", "unclipped", "weighted"))
    if run["question"] != "age":
        assert "gap" not in run or run["gap"][0] > dose.LIMIT
    if "multiplier" in run:
        assert min(run["multiplier"]) > 0 and len(set(run["multiplier"])) > 1


@pytest.mark.slow
def test_a_cell_can_be_run_again(monkeypatch):
    """One with every part of the claim's own: price, an anchor for it, a coarse sampler and a controller."""
    for name, small in {
        "STEPS": 2,
        "PROMPTS": 4,
        "GROUP": 2,
        "held_out_tasks": lambda size: held_out_tasks(size=2),
    }.items():
        monkeypatch.setattr(dose, name, small)
    found = dose.measure("price", "version-present", 1, 1e-4, 0)
    recorded = next(run for run in RUNS if run["arm"] == "version-present")
    assert set(found) == set(recorded) and found["oldest"] == 1 and 0 <= found["score"] <= 1
    assert found["priced"] != found["gap"] and len(found["multiplier"]) == 2


def scores(question: str, age: int, arm: str) -> list[float]:
    return dose_page.values(RUNS, question, age, arm)


def rising(age: int, arm: str) -> int:
    """Runs whose last four steps scored above the four before, in training."""
    rates = [run["pass_rate"] for run in dose.fresh(RUNS, "age", age, arm)]
    return sum(fmean(rate[-4:]) > fmean(rate[-8:-4]) for rate in rates)


def test_what_the_readme_says_follows_from_the_record():
    told = {(0, "plain"): 0.87, (1, "plain"): 0.73, (4, "plain"): 0.54, (4, "weighted"): 0.81, (4, "clip"): 0.82}
    told |= {(0, "clip"): 0.86, (1, "clip"): 0.84}
    told |= {(4, "sampler"): 0.84, (4, "decoupled"): 0.85, (16, "clip"): 0.82, (16, "decoupled"): 0.84}
    told |= {
        (16, "plain"): 0.63,
        (1, "sampler"): 0.89,
        (1, "decoupled"): 0.86,
        (16, "sampler"): 0.75,
        (4, "truncated"): 0.85,
    }
    told |= {(4, "unclipped"): 0.76}
    assert {(age, arm): round(median(scores("age", age, arm)), 2) for age, arm in told} == told
    fresh = {arm: scores("age", 0, arm) for arm in ("plain", "clip")}
    assert all(dose.p_value(scores("age", age, "plain"), fresh["plain"]) < dose.P for age in (1, 4, 16))
    assert dose.p_value(scores("age", 16, "sampler"), fresh["clip"]) < dose.P
    assert dose.p_value(scores("age", 4, "unclipped"), scores("age", 4, "plain")) < dose.P
    assert all(dose.p_value(scores("age", 1, arm), fresh["clip"]) > dose.P for arm in ("clip", "sampler", "decoupled"))
    assert dose.p_value(scores("age", 4, "weighted"), scores("age", 4, "plain")) < dose.P
    corrected = {
        arm: fresh["plain" if arm == "weighted" else "clip"]
        for arm in ("weighted", "clip", "sampler", "decoupled", "truncated")
    }
    assert all(dose.p_value(scores("age", 4, arm), same) > dose.P for arm, same in corrected.items())
    old = {arm: scores("age", 16, arm) for arm in ("clip", "decoupled")}
    assert (
        all(dose.p_value(found, fresh["clip"]) > dose.P for found in old.values())
        and dose.p_value(*old.values()) > dose.P
    )
    lowest = {arm: campaign.shift(scores("age", 4, arm), same)[1] for arm, same in corrected.items()}
    assert [round(-loss, 2) for loss in sorted(lowest.values())] == [0.09, 0.06, 0.03, 0.02, 0.02]
    assert all(dose.p_value(scores("gap", 0, arm), scores("gap", 0, "clip")) > dose.P for arm in ("token", "rollout"))
    assert [rising(0, "plain"), rising(0, "clip"), rising(4, "plain")] == [5, 5, 1]  # what longer runs may bring
    assert not any(score < dose.BEFORE for run in (*fresh.values(), scores("age", 4, "plain")) for score in run)


@pytest.mark.parametrize(
    ("question", "age", "priced"),
    [
        ("gap", 0, ("token", "rollout")),
        ("price", 4, ("present-present", "version-present", "present-version", "version-version")),
    ],
)
def test_why_the_price_decides_nothing(question, age, priced):
    def end(arm: str) -> float:
        return fmean(fmean(run["gap"][-4:]) for run in dose.fresh(RUNS, question, age, arm))

    for arm in priced:
        without = "clip" if question == "gap" else f"none-{arm.partition('-')[2]}"
        rates = [dose.best(RUNS, question, age, one) for one in (arm, without)]
        assert rates[0] != rates[1] or end(arm) >= end(without), arm
        assert all(sum(run["size"]) < 0.1 * sum(run["of"]) for run in dose.fresh(RUNS, question, age, arm))


def test_the_hypercube_has_each_level_as_often_as_any_other_and_no_cell_twice():
    cells = grid.hypercube()
    assert len(set(cells)) == grid.CELLS == 40 and cells == grid.hypercube()
    for place, levels in enumerate(grid.LEVELS.values()):
        counts = [sum(cell[place] == level for cell in cells) for level in levels]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("arm", ["decoupled", "plain", "tuned"])
def test_arms_of_the_grid_differ_in_nothing_but_what_they_are_named_after(arm):
    cell = grid.Cell("spell_backward", 4, "int4", 2, 3e-4)
    run, loop = (grid.run_of(grid.Job(one, cell, 0)) for one in (arm, "loop"))
    check(run)
    apart = {item.name for item in fields(run) if vars(run)[item.name] != vars(loop)[item.name]}
    assert apart == ({"correction", "optimization", "stability"} if arm == "plain" else {"stability"})
    assert run.max_staleness == 4 and (run.prompts_per_step, run.num_generations) == (32, 2)


def test_what_the_plan_says_of_age_is_what_was_measured():
    for age, (rate, steps, _) in grid_page.prices(grid.load()).items():
        assert price(float(age)) == (pytest.approx(rate, abs=0.051), pytest.approx(max(1.0, steps), abs=0.051))
    assert price(100.0) == price(16.0) and price(1.0).rate > price(2.0).rate > price(4.0).rate


@pytest.mark.parametrize("change", [name for name in holds.WITHOUT if name])
def test_of_an_ablation_one_part_is_taken_out(change):
    job = grid.Job("loop", holds.CORNER, 0)
    whole, without = holds.Trial("", job).run, holds.Trial(change, job).run
    check(without)
    apart = {item.name for item in fields(whole) if vars(whole)[item.name] != vars(without)[item.name]}
    assert apart == {"correction" if change == "correction" else "stability"}


def test_a_tenfold_rate_comes_at_step_20():
    rule = holds.Tenfold(rate=1e-4)
    state, rates = rule.init(), []
    for _ in range(32):
        rates.append(state["value"])
        state = rule.update(state, {})
    assert rates == [1e-4] * 20 + [1e-3] * 12


def test_what_the_results_say_of_the_closed_loop_follows_from_the_record():
    results = (CLAIMS.parent / "docs" / "results.md").read_text(encoding="utf-8")
    assert grid_page.table(grid.load()) in results
    assert grid_apart.beside(grid.load()) in " ".join(results.split())
