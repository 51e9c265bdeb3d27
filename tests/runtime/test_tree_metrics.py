"""What shared beginnings cost, as a run reports it: in the sampler and in the learner, for each unique token."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parent)]
from small import small_run

from gimbal.engines.native import Native
from gimbal.policies.token import CausalLM
from gimbal.runtime.local import Trainer
from gimbal.workflows.branching import Branching
from gimbal.workflows.single import SingleTurn


@pytest.mark.slow
def test_a_run_of_trees_reports_what_they_cost_for_each_unique_token():
    run = small_run(
        policy=CausalLM(), engine=Native(slots=64, precision="float32"), workflow=Branching(trunks=1), held_out=None,
        num_generations=4, max_staleness=0,
    )  # fmt: skip
    trainer = Trainer(run)
    metrics, groups, batch = trainer.advance()
    trainer.close()
    prompts = sum(int(group.rows[0].decisions.prompt_N[0]) for group in groups)
    unique = prompts + sum(row.drawn for group in groups for row in group.rows)
    whole = sum(int(n) for n in batch.decisions.length_N)
    assert unique < whole, "something is shared"
    rows = [row for group in groups for row in group.rows]
    taken = sum(row.fork[1] for row in rows if row.fork)
    assert metrics["rows/shared_frac"] == pytest.approx(taken / sum(row.length for row in rows)) and taken
    # The last token of each row has nothing behind it, and a branch puts the last that it took over through itself.
    assert unique - len(groups) * 5 <= metrics["perf/tree_sampler"] * unique <= unique
    # The learner also shares how prompts of several tasks begin.
    sequences, longest = trainer.policy.extent(batch.decisions)
    assert metrics["perf/tree_learner"] == sequences * longest / unique < 1.15 < whole / unique
    plain = Trainer(replace(run, workflow=SingleTurn()))
    metrics, _, _ = plain.advance()
    plain.close()
    assert not any("tree" in name or "shared" in name for name in metrics)
