"""The stages of a limit on turns, and that a dialogue is cut there and nowhere else."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / room) for room in ("workflows", "environments")]
from dice import Dice, ids, plain
from spoken import driven

from gimbal.dataflow.base import Progress
from gimbal.dataflow.curricula.horizon import COLUMN, Horizon
from gimbal.engines.base import Request, drained
from gimbal.environments.chores import Chores
from gimbal.environments.dataset import Rows
from gimbal.environments.terminal import Terminal
from gimbal.environments.tools import AbstractTool
from gimbal.policies.loading import AGENT
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Task
from gimbal.report.metrics import acting_metrics
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


@pytest.fixture(scope="module")
def agent():
    return CausalLM(model=AGENT).load()


def solved(agent, limit, shortest=False):
    """A chore by its own solution of three turns (two programs and the answer), or answered at once, under a limit on turns."""
    task = Chores(kinds=("follow_total",))[0]
    task = replace(task, columns=task.columns | ({} if limit is None else {COLUMN: limit}))
    programs = [] if shortest else task.columns["programs"]
    assert shortest or len(programs) == 2
    said = [*(f"${program}<eos>" for program in programs), f"<answer>{task.answer}</answer><eos>"]
    return driven(agent, task, Terminal(), *said)[0]


@pytest.mark.parametrize("limit", [None, 3, 4])
def test_an_environment_judges_the_last_turn_that_the_limit_allows(agent, limit):
    episode = solved(agent, limit)
    assert (episode.earned, episode.stop, len(episode.acts)) == (1.0, "terminated", 3)
    assert acting_metrics([(episode.acts, episode.stop)])["tool/cut_frac"] == 0.0
    assert solved(agent, 1, shortest=True).earned == 1.0


@pytest.mark.parametrize("limit", [1, 2])
def test_a_task_of_three_turns_is_truncated_at_fewer_and_counted(agent, limit):
    episode = solved(agent, limit)
    assert (episode.earned, episode.stop, turns(episode)) == (0.0, "truncated", limit)
    assert [act.turn for act in episode.acts] == list(range(limit)), "each of its turns was judged"
    found = acting_metrics([(episode.acts, episode.stop)])
    assert found["tool/cut_frac"] == 1.0 and found["tool/calls"] == limit
