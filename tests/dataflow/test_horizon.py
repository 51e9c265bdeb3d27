"""The stages of a limit on turns, and that a dialogue is cut there and nowhere else."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / "workflows")]
from dice import Dice, ids, plain

from gimbal.dataflow.base import Progress
from gimbal.dataflow.curricula.horizon import COLUMN, Horizon
from gimbal.engines.base import Request, drained
from gimbal.environments.dataset import Rows
from gimbal.environments.tools import AbstractTool
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task
from gimbal.workflows.dialogue import Dialogue
from gimbal.workflows.runner import Driven


def test_the_stages():
    live = Horizon(turns=(2, 5, 9), every=3).start(Rows(rows=[{"prompt": "a"}, {"prompt": "b"}]), 0)
    found = []
    for version in range(12):
        live.step(Progress(version=version, drawn=0))
        found.append(live.next().columns[COLUMN])
        assert live.metrics()["Horizon/turns"] == found[-1]
    assert found == [2, 2, 2, 5, 5, 5, 9, 9, 9, 9, 9, 9]
    for wrong in ((), (3, 2), (0, 1)):
        with pytest.raises(ValueError, match="rising numbers of turns"):
            Horizon(turns=wrong)


@dataclass(frozen=True, kw_only=True)
class One(AbstractTool):
    """Says "1"."""

    @property
    def triggers(self):
        return ("=",)

    def __call__(self, task, text):
        return "1"


def rows(turns=None, count=12):
    live = Driven(engine=Dice(), workflow=Dialogue(tool=One(), overlap=0)).start(CausalLM().load())
    columns = {} if turns is None else {COLUMN: turns}
    for sample in range(count):
        task = Task(id="t", prompt="1 + 1 =\n", columns=columns)
        sampling = Sampling(max_length=60)
        live.submit(Request(group=0, task=task, sample=sample, sampling=sampling, seed=3))
    return {key[1]: item.outcome for key, item in drained(live).items()}


def turns(episode):
    return int(episode.last.turn_S[-1]) + 1


def test_an_episode_that_wants_another_turn_is_cut_and_no_other():
    free = rows()
    assert {turns(episode) for episode in free.values()} >= {1, 2, 3}
    for limit in (1, 2):
        cut = 0
        for sample, episode in rows(limit).items():
            whole = free[sample]
            if turns(whole) <= limit:
                assert plain(episode)[0][0][:2] == plain(whole)[0][0][:2]
                continue
            cut += 1
            assert episode.last.stop == "truncated" and turns(episode) == limit
            assert ids(episode.last) == ids(whole.last)[: episode.last.length], "as it was, up to there"
        assert cut
    far = rows(100)
    assert all(replace(far[s].last, task=free[s].last.task).stop == free[s].last.stop for s in free)
    assert all(ids(far[s].last) == ids(free[s].last) for s in free)
