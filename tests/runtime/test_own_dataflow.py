"""A mistake in a curriculum, a budget or a filter of the user's own is one sentence: the part, its line and what it must do."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "users")]
from own_flow import Mine, Narrow, Never, OneLeft, Spends
from small import small_run

from gimbal.config.own import fault
from gimbal.dataflow.curricula.retiring import Retiring
from gimbal.runtime import rounds
from gimbal.runtime.local import Trainer, run_local


def said(run, directory):
    with pytest.raises(Exception) as raised:
        run_local(run, directory)
    return fault(raised.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"curriculum": Mine(wrong="start")}, r"^Mine\.start \(own_flow.py, line 39\) returned None; it must .*an AbstractCurriculum "),
        (
            {"curriculum": Retiring(order=Mine(wrong="start"))},
            r"^Mine\.start \(own_flow.py, line 39\) returned None; it must .*an AbstractCurriculum \(",
        ),
        ({"curriculum": Narrow()}, r"^Narrow\.start \(own_flow.py, line 45\) takes 2 .* but 3 .*must be \(self, tasks, seed\)$"),
        ({"budget": Spends(rollouts=0)}, r"^LiveBudget\.plan \(own_flow.py, line 53\) returned \[Plan\(rollouts=0, .*import Plan\)$"),
        ({"budget": Spends(more="2")}, r"^LiveBudget\.more \(own_flow.py, line 56\) returned \['2'\]; it must return a list of 1 num"),
        ({"curriculum": Mine(wrong="metrics")}, r"^Live\.metrics \(own_flow.py, line 24\) returned .*'high'\}; .*'level' is none"),
        ({"curriculum": Mine(wrong="state")}, r"^Live\.state_dict \(own_flow.py, line 27\) returned .*\(AttributeError: Can't pickle"),
        (
            {"curriculum": Retiring(order=Mine(wrong="state"))},
            r"^Live\.state_dict \(own_flow.py, line 27\) returned .*; it must .*\(AttributeError: Can't pickle",
        ),
    ],
)  # fmt: skip
def test_each_mistake_is_named_with_its_part_and_line(single_thread, tmp_path, changes, sentence):
    told = said(small_run(steps=1, **changes), tmp_path / "run")
    assert re.search(sentence, told), told
    assert not (tmp_path / "run" / "metrics.jsonl").exists() or not (tmp_path / "run" / "metrics.jsonl").read_text()


def test_a_state_that_breaks_later_costs_the_checkpoint_but_not_what_was_trained(single_thread, tmp_path):
    run = small_run(curriculum=Mine(wrong="later"), steps=4, checkpoint_every=4)
    told = said(run, tmp_path / "run")
    assert "Live.state_dict" in told and f"the weights after step 4 are in {tmp_path / 'run' / 'model'}" in told
    run_local(replace(run, curriculum=Mine()), tmp_path / "whole")
    weights = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert weights[0] == weights[1]


def test_a_budget_that_never_has_enough_is_named(single_thread, tmp_path, monkeypatch):
    monkeypatch.setattr(rounds, "MOST_GROWTH", 5)
    told = said(small_run(budget=Spends(more=1), steps=1), tmp_path / "run")
    assert re.search(
        r"^LiveBudget\.more \(own_flow.py, line 56\) returned \[1\]; it must return 0 .* asked 5 times", told
    )


def test_how_often_a_group_was_given_more_is_resumed(single_thread):
    run = small_run(budget=Spends(more=1), steps=1)
    trainer = Trainer(run)
    trainer.begin()
    pipeline = trainer.pipeline
    pipeline._dispatch(0)
    while not any(flight.growths for flight in pipeline.outstanding.values()):
        pipeline._go_on()
    other = Trainer(run)
    other.begin()
    other.pipeline.load_state_dict(pipeline.state_dict())
    held = [{index: flight.growths for index, flight in one.outstanding.items()} for one in (pipeline, other.pipeline)]
    assert held[0] == held[1]
    trainer.close()
    other.close()


def test_groups_with_nothing_to_compare_are_told_of_once(single_thread):
    told = []
    trainer = Trainer(small_run(budget=Spends(rollouts=1)), note=told.append)
    trainer.advance()
    (sentence,) = [one for one in told if "gradient of 0" in one]
    assert sentence.startswith("LiveBudget gives task row:22 1 rollout, and the advantage compares at least 2")
    trainer.close()


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (
            OneLeft(),
            "Of 4 of them fewer than 2 rollouts were left, .*; OneLeft took 12 of their rollouts: let more rollouts stay",
        ),
        (Never(), r"4 of these 4 were dropped as on_sundays, whatever their scores"),
    ],
)
def test_the_reason_for_which_all_were_dropped_is_the_one_that_is_told(single_thread, tmp_path, rule, sentence):
    with pytest.raises(ValueError, match=sentence) as told:
        run_local(small_run(filters=(rule,), max_empty_batches=2), tmp_path / "run")
    assert "too hard" not in str(told.value)
