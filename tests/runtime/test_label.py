"""Values of steps by playing on: right steps are worth more, and what is written trains."""

from dataclasses import replace

import pytest

from gimbal.engines.native import Native
from gimbal.environments.choices import Choices
from gimbal.environments.jsonl import Jsonl
from gimbal.policies.token import CausalLM
from gimbal.recipes.papers.data.direct_advantage import direct_advantage
from gimbal.records import Sampling, Task
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.label import label, write
from gimbal.runtime.local import Trainer

SAMPLES = 4


@pytest.fixture(scope="module")
def labelled():
    policy = CausalLM().load()
    engine = Native(slots=64, precision="float32").start(policy)
    engine.load(0, policy.state_dict())
    steps = Choices(part="step", count=3, size=50)
    return label(engine, [steps[i] for i in range(6)], [ExactAnswer()], Sampling(max_length=48), samples=SAMPLES)


def test_right_steps_are_worth_more(labelled):
    scores = [task.columns["score"] for task in labelled]
    assert all(len(own) == 3 and set(own) <= {k / SAMPLES for k in range(SAMPLES + 1)} for own in scores)
    assert sum(own[0] for own in scores) > 2 * sum(own[1] + own[2] for own in scores)


def test_what_is_written_trains(labelled, tmp_path):
    write(labelled, tmp_path / "steps.jsonl")
    tasks = Jsonl(path=str(tmp_path / "steps.jsonl"))
    read = [tasks[i] for i in range(len(tasks))]
    for one, other in zip(read, labelled, strict=True):
        assert (one.id, one.prompt, one.answer) == (other.id, other.prompt, other.answer)
        assert all(one.columns[key] == other.columns[key] for key in ("completion", "score"))
    run = replace(direct_advantage(), tasks=tasks, held_out=None, prompts_per_step=2, num_generations=3, threads=1)
    trainer = Trainer(run)
    try:
        _, groups, _ = trainer.advance()
    finally:
        trainer.close()
    scores = {task.id: task.columns["score"] for task in labelled}
    assert all([rollout.score for rollout in group.rollouts] == scores[group.task.id] for group in groups)


@pytest.mark.parametrize("columns", [{}, {"completion": "one"}, {"completion": ["a"], "messages": []}])
def test_candidates_are_a_list_after_a_plain_prompt(columns):
    policy = CausalLM().load()
    engine = Native(slots=2, precision="float32").start(policy)
    with pytest.raises(ValueError, match="candidate"):
        label(engine, [Task(id="a", columns=columns)], [ExactAnswer()], Sampling())
