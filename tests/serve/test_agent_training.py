"""gimbal train with an agent: the run as a whole."""

import json
from pathlib import Path

import pytest

import gimbal
from gimbal.learning.weight_sync.proof import NotDelivered
from gimbal.runtime import checkpoint
from gimbal.serve import live

AGENTS = Path(__file__).parent / "agents.py"
pytestmark = pytest.mark.slow  # whole runs, of a small model and real programs: a second or two each
ROWS = [{"prompt": f"{a} + 1 =", "answer": str(a + 1)} for a in range(6)]
SAME = ("time/", "perf/", "eval/seconds")


def train(runs, program="solve", rows=ROWS, **changes):
    usual = {
        "agent": f"{AGENTS}:{program}",
        "tasks": rows,
        "held_out": None,
        "prompts_per_step": 2,
        "num_generations": 4,
        "steps": 3,
        "engine": "Native(slots=16, precision='float32')",
        "sampling__max_length": 32,
        "threads": 1,
        "runs": runs,
    }
    return gimbal.train("grpo", **(usual | changes))


def metrics(directory):
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if not key.startswith(SAME)} for row in rows]


def test_a_run_trains_on_what_its_agent_earned_and_is_evaluated_through_it(tmp_path):
    result = train(tmp_path, held_out=ROWS[:2])
    rows = metrics(result.directory)
    assert result.summary.steps == 3 and rows[-1]["reward/agent/mean"] > 0 and rows[0]["grad_norm"] > 0
    assert "eval/greedy_score" in result.summary.after and (result.directory / "report.html").is_file()
    assert max(row["staleness/max"] for row in rows) <= 1


def test_the_same_run_has_the_same_bytes_and_so_has_one_that_was_stopped_amid_its_episodes(tmp_path):
    """By steps of the engine (overlap) everything is repeated; the checkpoint after step 2 holds episodes that are half done."""
    fields = {
        "max_staleness": 1,
        "workflow__overlap": 4,
        "workflow__at_once": 5,
        "checkpoint_every": 1,
        "program": "hasty",
    }
    whole = train(tmp_path, name="whole", steps=4, **fields)
    stopped = train(tmp_path, name="stopped", steps=2, **fields)
    flows = checkpoint.load(checkpoint.newest(stopped.directory))["pipeline"]["engine"]["flows"]
    assert any(len(flow["journal"]) > 3 for flow in flows)  # one that has had an answer, and waits for what comes next
    again = gimbal.train(resume=stopped.directory, steps=4, runs=tmp_path)
    assert metrics(whole.directory) == metrics(again.directory)
    names = ["/".join((str(result.directory), "model", "model.safetensors")) for result in (whole, again)]
    assert Path(names[0]).read_bytes() == Path(names[1]).read_bytes()


def test_failures_are_counted_by_name_and_the_run_goes_on(tmp_path):
    rows = [{**row, "how": how} for row, how in zip(ROWS, ["raise", None, None, "killed", None, None], strict=True)]
    result = train(tmp_path, rows=rows, steps=2, max_staleness=0, tasks=rows)
    drops = result.summary.drops
    assert drops["rollouts/agent_error"] % 4 == 0 and drops["rollouts/agent_error"] >= 4 and drops["agent_error"] >= 1


def test_an_agent_that_asks_for_a_column_that_is_not_there_is_told_which_are(tmp_path):
    rows = [{**row, "how": "lacks"} for row in ROWS]
    with pytest.raises(ValueError, match=r"it raised KeyError: 'expected' .*; the task has .*answer.*prompt"):
        train(tmp_path, rows=rows, steps=2, max_staleness=0, tasks=rows, max_empty_batches=1)


def test_missing_scores_end_a_run_that_has_no_reward_and_train_nothing(tmp_path):
    with pytest.raises(
        ValueError, match=r"unscored ended with no score; return a finite number.*reward=FILE\.py:FUNCTION"
    ):
        train(tmp_path, "unscored", steps=2, max_staleness=0, max_empty_batches=1)
    assert train(tmp_path, "unscored", steps=1, max_staleness=0, reward="ExactAnswer()").summary.steps == 1


def test_delivery_is_proved_at_the_address(tmp_path, monkeypatch):
    """Something else that answers there, with a version of its own, ends the run before it draws anything."""
    said = live.Said

    def other(**fields):
        return said(**(fields | {"versions": tuple(version + 7 for version in fields["versions"])}))

    monkeypatch.setattr(live, "Said", other)
    with pytest.raises(NotDelivered, match="at version 7, not 0"):
        train(tmp_path)


def test_a_reward_of_the_run_reads_what_the_agent_drew(tmp_path):
    result = train(tmp_path, steps=1, reward="ExactAnswer()", max_staleness=0)
    assert "reward/agent/mean" not in metrics(result.directory)[0]


def test_an_agent_that_cannot_be_called_is_one_sentence():
    with pytest.raises(ValueError, match="has no lost"):
        train("nowhere", program="lost")
