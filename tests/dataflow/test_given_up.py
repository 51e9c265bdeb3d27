"""A sample that the engine gives up leaves its group to the others, under a counted reason, and never ends the run."""

from collections import Counter

import made
import pytest
from uneven import Counting, Short, Uneven, length

from gimbal.advantages import GroupNormalized, ReturnToGo
from gimbal.dataflow.budgets.fixed import FixedBudget
from gimbal.dataflow.staleness import Pace
from gimbal.engines.base import Finished
from gimbal.policies.token import Sampling
from gimbal.records import Drop, Episode, Group, Task
from gimbal.runtime.base import AtOnce
from gimbal.runtime.patience import Patience
from gimbal.runtime.pipeline import Parts, Pipeline, Starved


class Pruning(Uneven):
    """Gives up what is longer than ``longest`` and, without a word, all of sample ``silent``."""

    def __init__(self, longest, silent=-1):
        super().__init__(0, 1000, 0.0)
        self.longest, self.silent = longest, silent

    def submit(self, request):
        if request.sample != self.silent:
            super().submit(request)

    def step(self):
        done = super().step()
        long = [item for item in self.live if len(item[2]) > self.longest]
        self.live = [item for item in self.live if len(item[2]) <= self.longest]
        return done + [Finished(key=r.key, outcome=Drop("too_long", drawn=len(drawn))) for r, _, drawn in long]


def pipeline(engine, size=4, fewest=2, patience=10, note=print):
    rewards = [Short()]
    return Pipeline(
        Parts(
            engine=engine,
            scorer=AtOnce(rewards),
            curriculum=Counting(),
            budget=FixedBudget(size, 64),
            rewards=rewards,
            filters=(),
            sampling=Sampling(max_length=64),
            least=fewest,
            note=note,
        ),
        Pace().start(1, 3),
        ahead="ready",
        seed=0,
        max_empty_batches=patience,
    )


def batches(made_of, steps):
    for version in range(steps):
        made_of.parts.engine.load(version, {})
        yield made_of.next_batch(version)[0]


@pytest.mark.parametrize("fewest", [1, 2, 4])
def test_what_was_given_up_is_counted_and_the_others_train(fewest):
    engine = Pruning(longest=8)
    asked = []
    engine.submit = lambda request: (asked.append(request), Uneven.submit(engine, request))
    line = pipeline(engine, fewest=fewest)
    groups = [group for batch in batches(line, 12) for group in batch]
    assert len(groups) == 36
    short = Counter(request.group for request in asked if length(request) <= 8)
    for group in groups:
        assert len(group.episodes) == short[group.index] >= fewest
    # Every request is accounted for: trained on, waiting, under way, or dropped, by itself or with its group.
    drawing = {index for index, flight in line.outstanding.items() if flight.state == "drawing"}
    done = sorted(set(range(line.dispatched)) - drawing)
    assert line.drops["rollouts/too_long"] == sum(4 - short[index] for index in done) > 0
    assert line.drops["too_few"] == sum(0 < short[index] < fewest for index in done)
    assert line.drops["too_few"] > 0 or fewest < 4
    under_way = sum(length(request) <= 8 for request, _, _ in [*engine.live, *engine.queue])
    assert line.generated["rollouts"] == sum(short.values()) - under_way


def test_a_group_of_which_nothing_is_left_is_dropped_for_what_befell_it():
    engine = Pruning(longest=0)
    engine.step = lambda: [Finished(key=i.key, outcome=Drop("too_long", drawn=1)) for i in Pruning.step(engine)]
    line = pipeline(engine, patience=2)
    with pytest.raises(Starved, match="6 too_long"):
        next(batches(line, 1))
    assert line.drops["rollouts/too_long"] == 24 and not line.uncollected
    assert line.generated["rollouts"] == 0 and line.generated["decisions"] == 24  # they were drawn all the same


def test_where_rollouts_broke_their_error_is_told_and_no_advice_on_tasks():
    engine = Pruning(longest=0)
    broken = Drop("tool_error", drawn=1, said="tool Mine for task 3, turn 0 raised KeyError: 'x' (mine.py, line 7)")
    engine.step = lambda: [Finished(key=i.key, outcome=broken) for i in Pruning.step(engine)]
    line = pipeline(engine, patience=2)
    with pytest.raises(
        Starved,
        match=r"6 tool_error\), so there is nothing .*with: tool Mine .*line 7\) \(\d+ rollouts failed like this\)$",
    ) as told:
        next(batches(line, 1))
    assert "too hard" not in str(told.value)


def test_a_resumed_run_has_the_whole_patience_again_and_its_own_reasons():
    """Who resumes such a run has repaired something: the errors of before are not told as the reason of what is dropped now."""

    def broken(reason, said):
        engine = Pruning(longest=0)
        drop = Drop(reason, drawn=1, said=said)
        engine.step = lambda: [Finished(key=item.key, outcome=drop) for item in Pruning.step(engine)]
        return pipeline(engine, patience=2, note=lambda sentence: None)

    line = broken("environment_error", "the database is down")
    line.patience.broken(line.parts.curriculum.next(), Drop("environment_error", said="the database is down"))
    for _ in range(5):
        line.drops["environment_error"] += 1
        line.patience.dropped("environment_error", line.drops)
    assert line.patience.in_a_row == 5
    after = broken("sandbox_error", "no container is free")
    after.load_state_dict(line.state_dict())
    with pytest.raises(Starved, match=r"the last 6 groups .*most recently with: no container is free"):
        next(batches(after, 1))
    assert after.drops["environment_error"] == 5, "the counts of the whole run go on"


def test_each_cause_of_a_failure_is_told_once():
    """What an agent printed and the numbers in it differ from rollout to rollout; the cause does not."""
    told, task = [], Task(id="a")
    patience = Patience(2, least=2, note=told.append)
    long = (
        "the agent agent.py:solve failed: it raised KeyError: 'expected' (agent.py, line 8); "
        + "the task has answer, prompt " * 4
    )
    for number in range(9):
        patience.broken(task, Drop("agent_error", said=f"{long}; it printed: {number} {'x' * number}"))
    patience.broken(task, Drop("agent_timeout", said="it is late"))
    assert [said.partition(": ")[0] for said in told] == [
        f"a rollout of task a failed and was removed from its group ({reason})"
        for reason in ("agent_error", "agent_timeout")
    ]
    patience.broken(task, Drop("agent_error", said=long))
    patience.dropped("agent_error", {})
    with pytest.raises(
        Starved, match=r"most recently with: the agent agent.py:solve failed.*\(10 rollouts failed like this\)"
    ):
        patience.dropped("agent_error", {})
    for number in range(5):
        patience.broken(task, Drop("provider_error", said="other " * number))
    assert len(told) == 3, "of more causes than a person reads, the first"


def test_an_engine_that_loses_a_request_is_named_with_it():
    line = pipeline(Pruning(longest=64, silent=2))
    with pytest.raises(AssertionError, match=r"Pruning lost 6 requests \(group, sample\): \[\(0, 2\)"):
        next(batches(line, 1))


def test_an_episode_whose_environment_broke_is_neither_a_success_nor_a_failure():
    engine = Pruning(longest=64)

    def step():
        return [
            Finished(key=item.key, outcome=Episode(rows=(item.rollout,), error="the sandbox is gone"))
            if item.key[1] == 0
            else item
            for item in Uneven.step(engine)
        ]

    engine.step = step
    told = []
    line = pipeline(engine, note=told.append)
    (groups,) = batches(line, 1)
    assert len(told) == 1 and "the sandbox is gone" in told[0]
    assert all([episode.sample for episode in group.episodes] == [1, 2, 3] for group in groups)
    assert line.drops["rollouts/environment_error"] >= 3


def test_how_few_an_estimator_compares():
    assert GroupNormalized().fewest == 2 and ReturnToGo().fewest == 1


def test_rows_of_one_episode_share_its_score_and_count_once():
    first, last = made.rollout(sample=1, text="a"), made.rollout(sample=1, text="b", fork=None)
    group = Group(index=0, task=made.TASK, episodes=(Episode(rows=(first, last)), Episode.of(made.rollout())))
    scored = group.keep([group.rollouts[1], made.rollout(sample=1, text="b", score=0.5)])
    assert [row.text for row in group.rollouts] == ["b", ""] and len(group.rows) == 3
    assert [row.score for row in scored.rows] == [None, 0.5, 0.5] and scored.score_G.tolist() == [0.0, 0.5]
    with pytest.raises(AssertionError, match="rows of several episodes"):
        Episode(rows=(first, made.rollout(sample=2)))
