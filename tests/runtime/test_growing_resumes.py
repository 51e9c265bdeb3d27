"""A run whose groups grow and whose tasks are chosen is cut with groups half grown, and goes on bit for bit."""

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
from small import rows, small_run
from test_resume import weights, written

from gimbal.composition import GROWS
from gimbal.dataflow.base import AbstractBudget, AbstractBudgetSpec, Plan
from gimbal.dataflow.budgets.seeded import Seeded
from gimbal.dataflow.curricula.variance_sampled import VarianceSampled
from gimbal.runtime import checkpoint
from gimbal.runtime.local import Trainer, run_local
from gimbal.runtime.schedule import digest


@dataclass(frozen=True, kw_only=True)
class OneByOne(AbstractBudgetSpec):
    """Two rollouts, and then one at a time, up to as many as the group's index says."""

    def effects(self):
        return frozenset({GROWS})

    def start(self, rollouts, max_length):
        return OneByOneBudget()


class OneByOneBudget(AbstractBudget):
    def plan(self, tasks):
        return [Plan(rollouts=2, max_length=8) for _ in tasks]

    def more(self, begun):
        return [int(b.asked < 2 + b.group.index % 4) for b in begun]


class InRounds(AbstractBudget):
    rounds = True

    def plan(self, tasks):
        return [Plan(rollouts=2, max_length=4 * (1 + at % 2)) for at, _ in enumerate(tasks)]


@dataclass(frozen=True, kw_only=True)
class OfTwoLengths(AbstractBudgetSpec):
    """Short groups wait for the long ones of their round."""

    def start(self, rollouts, max_length):
        return InRounds()


def test_it_goes_on_with_a_scored_group_that_waits_for_its_round(single_thread, tmp_path):
    trainers = [Trainer(small_run(budget=OfTwoLengths(), max_staleness=1)) for _ in range(2)]
    for trainer in trainers:
        trainer.begin()
    pipeline, other = (trainer.pipeline for trainer in trainers)
    pipeline._dispatch(0)
    while "scored" not in {flight.state for flight in pipeline.outstanding.values()}:
        pipeline._go_on()
    other.load_state_dict(checkpoint.load(trainers[0].save(tmp_path, {}))["pipeline"])
    assert [(i, f.state) for i, f in other.outstanding.items()] == [
        (i, f.state) for i, f in pipeline.outstanding.items()
    ]
    assert digest(pipeline.next_batch(0)[0]) == digest(other.next_batch(0)[0])
    for trainer in trainers:
        trainer.close()


@pytest.mark.slow
@pytest.mark.parametrize("budget", [OneByOne(), Seeded(inside=OneByOne(), threshold=0.05)], ids=["plain", "seeded"])
def test_it_goes_on_with_a_group_half_grown(single_thread, tmp_path, budget):
    run = small_run(
        curriculum=VarianceSampled(),
        budget=budget,
        tasks=rows(6),
        max_staleness=1,
        steps=4,
        checkpoint_every=1,
        keep_checkpoints=4,
    )
    run_local(run, tmp_path / "whole")
    held = [checkpoint.load(place)["pipeline"] for place in sorted((tmp_path / "whole" / "checkpoints").iterdir())]
    growing = [
        any(one["growths"] and one["state"] != "ready" for one in state["outstanding"].values()) for state in held[:-1]
    ]
    assert any(growing), "a group is cut off half grown"
    step, cut = 1 + growing.index(True), tmp_path / "cut"
    shutil.copytree(tmp_path / "whole", cut)
    for later in range(step + 1, 5):
        shutil.rmtree(cut / "checkpoints" / f"step_{later:06d}")
    assert checkpoint.newest(cut).name == f"step_{step:06d}"
    run_local(run, cut, resume=True)
    assert written(tmp_path / "whole") == written(cut) and weights(tmp_path / "whole") == weights(cut)
    if isinstance(budget, Seeded):
        assert any(state["budget"]["held"] and state["budget"]["counts"][0] for state in held), "prompts are seeded"
    assert any("selection/listed/tasks" in line for line in written(cut)[0]), "tasks came again"
