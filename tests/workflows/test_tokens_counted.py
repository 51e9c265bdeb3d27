"""Every decision that an engine draws is counted once: also of whole groups that are taken back, and none that was only forced."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Digits, small_run

from gimbal.engines.decoding import RowTable
from gimbal.engines.native import Native
from gimbal.policies.token import Sampling
from gimbal.runtime.local import Trainer
from gimbal.workflows.branching import Branching
from gimbal.workflows.gated_tree import GatedTree
from gimbal.workflows.lookahead import Lookahead
from gimbal.workflows.pruning import Pruning

RECYCLED = {"oversampling": 2.0, "surplus": "recycle"}
LOOKAHEAD = {
    "workflow": Lookahead(ages=(2, 4), longest=12, above=0.1, within=0.5),
    "engine": Native(slots=12, precision="float32", rivals=True),
}
GATED = {
    "workflow": GatedTree(roots=3, window=3, falls=1, rises=1),
    "engine": Native(slots=12, precision="float32", entropy=True),
}


@pytest.mark.parametrize(
    "changes",
    [
        RECYCLED,
        {**LOOKAHEAD},
        {**LOOKAHEAD, **RECYCLED},
        {**GATED, **RECYCLED},
        {"workflow": Branching(trunks=2, places=2, deep=True), **RECYCLED},
        {"workflow": Pruning(at=5, warm_up=1, reward=Digits(), keep=0.5), **RECYCLED},
    ],
    ids=["single", "lookahead", "lookahead back", "gated back", "branching back", "pruning back"],
)
def test_what_the_engine_draws_is_what_the_account_says(changes, single_thread, monkeypatch):
    drawn, show = [0], RowTable.show

    def counted(table, rows):
        drawn[0] += rows
        return show(table, rows)

    monkeypatch.setattr(RowTable, "show", counted)
    trainer = Trainer(small_run(num_generations=8, sampling=Sampling(max_length=30), steps=3, **changes))
    trainer.begin()
    before = drawn[0]  # of the text that proves the delivery
    for _ in range(3):
        trainer.advance()
    # What is still with the engine or in an unfinished group is counted when it comes in.
    pipeline = trainer.pipeline
    assert not pipeline.parts.engine.in_flight and not any(flight.results for flight in pipeline.outstanding.values())
    assert pipeline.generated["decisions"] == drawn[0] - before
    assert bool(pipeline.drops["recycled"]) == ("surplus" in changes)
    trainer.close()
