"""Completions with their scores, sample by sample, from the tasks to the rollouts."""

import re

import pytest

from gimbal.engines.base import Request
from gimbal.engines.offline import Offline
from gimbal.environments.choices import Choices
from gimbal.policies.token import CausalLM, Sampling
from gimbal.records import Group, Task
from gimbal.rewards.recorded import Recorded
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.runner import Driven

STEP = re.compile(r"(-?\d+)([+-]\d+)=(-?\d+)$")


def test_answers_are_right_and_wrong():
    for index in range(5):
        task = Choices(count=3, size=50)[index]
        answers = [text.split("<answer>")[1].split("</answer>")[0] for text in task.columns["completion"]]
        assert answers[0] == task.answer and task.answer not in answers[1:]
        assert task.columns["score"] == [1.0, 0.0, 0.0]


def test_steps_go_on_from_right_steps():
    prefixed = 0
    for index in range(8):
        task = Choices(part="step", count=4, size=50)[index]
        right = [int(a) + int(b) == int(c) for a, b, c in (STEP.match(x).groups() for x in task.columns["completion"])]
        assert right == [True, False, False, False]
        prefix = task.prompt.split("<think>")[1]
        prefixed += bool(prefix)
        for step in prefix.split():
            a, b, c = STEP.match(step).groups()
            assert int(a) + int(b) == int(c)
    assert 0 < prefixed < 8


@pytest.mark.parametrize("end", [True, False])
def test_each_sample_copies_its_own_text(end):
    task = Choices(size=50)[0]
    policy = CausalLM().load()
    engine = Driven(engine=Offline(), workflow=Demonstrated(end=end)).start(policy)
    for sample in range(2):
        engine.submit(Request(group=0, task=task, sample=sample, sampling=Sampling(), seed=0))
    rollouts = tuple(finished.rollout for finished in engine.step())
    assert [r.text for r in rollouts] == task.columns["completion"]
    drawn = rollouts[0].decisions.ids_NL[0, int(rollouts[0].decisions.prompt_N[0]) :].tolist()
    assert (drawn[-1] in policy.end_ids) == end and policy.decode(drawn) == rollouts[0].text
    assert Recorded()(Group.of(0, task, rollouts[::-1])) == [0.0, 1.0]
    with pytest.raises(ValueError, match="num_generations"):
        engine.submit(Request(group=0, task=task, sample=2, sampling=Sampling(), seed=0))
        engine.step()


def test_a_single_score_holds_for_all_and_a_missing_one_is_named():
    group = Group.of(0, Task(id="a", columns={"score": 0.5}), ())
    assert Recorded()(group) == []
    with pytest.raises(ValueError, match="no column 'score'"):
        from gimbal.rewards.recorded import chosen

        chosen(Task(id="a"), "score", 0)


@pytest.mark.parametrize("wrong", [{"count": 1}, {"count": 9}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match="Choices"):
        Choices(**wrong)
