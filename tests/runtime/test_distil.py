"""A policy's own right answers and its record, task by task, and what they are good for."""

from dataclasses import dataclass, replace

import pytest
import torch

from gimbal import recipes
from gimbal.cli import main
from gimbal.config import Text
from gimbal.engines.offline import Offline
from gimbal.environments.dataset import Dataset, Rows
from gimbal.environments.form_pairs import FormPairs
from gimbal.environments.within import Within
from gimbal.policies.token import CausalLM, Sampling
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.distil import distil, write_tasks
from gimbal.runtime.local import Trainer
from gimbal.workflows.demonstrated import Demonstrated
from gimbal.workflows.runner import Driven

RIGHT, LONGER, WRONG = "<answer>4</answer>", "<think>2+2=4</think><answer>4</answer>", "<answer>5</answer>"
DRAWN = [[WRONG, LONGER, RIGHT, WRONG], [WRONG] * 4, [RIGHT] * 4]
TASKS = Rows(rows=[{"prompt": f"{i}: 2+2=", "answer": "4", "completion": texts} for i, texts in enumerate(DRAWN)])


@dataclass(frozen=True, kw_only=True)
class Worked(AbstractReward):
    """Half a point for thinking; silent on what holds a 5."""

    name: str = "worked"
    weight: float = 0.5

    def __call__(self, group):
        return [None if "5" in r.text else float("<think>" in r.text) for r in group.rollouts]


def distilled(*rewards, **kwargs):
    engine = Driven(engine=Offline(), workflow=Demonstrated()).start(CausalLM().load())
    engine.load(0, {})
    return distil(engine, [TASKS[i] for i in range(3)], rewards, Sampling(), samples=4, **kwargs)


def test_by_hand():
    done = distilled(ExactAnswer())
    assert [task.columns["pass_rate"] for task in done] == [0.5, 0, 1]
    assert done[0].columns["completion"] == RIGHT  # of equals the shortest
    assert "completion" not in done[1].columns and done[2].columns["completion"] == RIGHT


def test_the_best_is_by_the_whole_score_and_what_has_none_is_not_solved():
    done = distilled(ExactAnswer(), Worked())
    assert done[0].columns["completion"] == LONGER
    assert [task.columns["pass_rate"] for task in distilled(Worked(), threshold=0.5)] == [0.25, 0, 0]


@dataclass(frozen=True, kw_only=True)
class Length(AbstractReward):
    """A measure, which solves nothing."""

    name: str = "length"

    @property
    def decides(self):
        return False

    def __call__(self, group):
        return [float(len(r.text)) for r in group.rollouts]


def test_where_the_first_reward_only_measures_it_says_so():
    with pytest.raises(ValueError, match=r"length decides nothing: put one that does first.*held_out\.rewards"):
        distilled(Length(), ExactAnswer())
    done = distilled(Length(), ExactAnswer(), threshold=18.0)
    assert [task.columns["pass_rate"] for task in done] == [1, 1, 1]


def test_solved_is_what_an_evaluation_calls_so():
    """By the first reward, whatever the weights: two that share a score would never come to 1 together."""
    done = distilled(ExactAnswer(weight=0.7), Worked(weight=0.3))
    assert [task.columns["pass_rate"] for task in done] == [0.5, 0, 1]


def test_a_pool_of_what_is_solved_seldom_and_pairs_about_form(tmp_path):
    write_tasks(distilled(ExactAnswer()), tmp_path / "own.jsonl")
    own = Dataset(path=str(tmp_path / "own.jsonl"))
    assert [task.id for task in (own[0], own[1], own[2])] == [TASKS[i].id for i in range(3)]
    pool = Within(tasks=own, column="pass_rate", above=0.1, upto=0.6)
    assert len(pool) == 1 and pool[0].prompt == "0: 2+2="
    pairs = FormPairs(tasks=Within(tasks=own, column="pass_rate", above=0.0))
    assert [pairs[i].columns["completion"][0] for i in range(len(pairs))] == [RIGHT, RIGHT]


def test_what_several_experts_solved_teaches_one_by_file(tmp_path, single_thread, monkeypatch):
    """CODA's second stage, and PACED's first with one file, which a teacher wrote."""
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):  # of an application each
        solved = [replace(task, id=f"{name}/{task.id}") for task in distilled(ExactAnswer())]
        write_tasks(solved, tmp_path / f"{name}.jsonl")
    CausalLM().load().save(tmp_path / "start")
    pooled = Text("Within(tasks='a.jsonl,b.jsonl',column='pass_rate',above=0)")
    run = recipes.load("sft", {"tasks": pooled, "policy.model": Text("start")})
    assert len(run.tasks) == 4, "two of three tasks of each are solved"
    trainer = Trainer(replace(run, steps=1, prompts_per_step=4, held_out=None, threads=1))
    _, groups, _ = trainer.advance()
    trainer.close()
    assert [episode.text.removesuffix("\n") for group in groups for episode in group.episodes] == [RIGHT] * 4


@pytest.mark.slow
def test_by_the_policy_itself(single_thread):
    from gimbal.recipes.core.grpo import grpo

    run = grpo()
    policy = run.policy.load(0)
    engine = run.engine.start(policy)
    engine.load(0, policy.state_dict())
    rewards = [reward.open() for reward in run.rewards]
    try:
        tasks = [run.tasks[i] for i in range(3)]
        done = distil(engine, tasks, rewards, run.sampling, samples=4)
    finally:
        for reward in rewards:
            reward.close()
    assert torch.tensor([task.columns["pass_rate"] for task in done]).isfinite().all()
    assert all(("completion" in task.columns) == (task.columns["pass_rate"] > 0) for task in done)


def test_chat_prompts_are_written_as_they_came(tmp_path):
    messages = [{"role": "user", "content": "2+2?"}]
    write_tasks([Rows(rows=[{"prompt": messages}])[0]], tmp_path / "own.jsonl")
    assert Dataset(path=str(tmp_path / "own.jsonl"))[0].columns["messages"] == messages


@pytest.mark.slow
def test_the_command_line_writes_and_certifies(tmp_path, monkeypatch, capsys):
    """gimbal eval MODEL --keep and --certify: what they write can be trained on, and what has decided once decides no more."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "few.jsonl").write_text('{"prompt": "1 + 1 =\\n", "answer": "2"}\n')
    small = [
        "model",
        "--recipe",
        "grpo",
        "sampling.max_length=8",
        "held_out=few.jsonl",
        "reward=ExactAnswer()",
        "held_out.samples=2",
        "threads=1",
    ]
    CausalLM().load().save(tmp_path / "model")
    assert main(["eval", *small, "--keep", "own.jsonl"]) == 0
    assert Dataset(path="own.jsonl")[0].columns["pass_rate"] in (0.0, 0.5, 1.0)
    test = "SafetyTest(tasks=Dataset(path='few.jsonl'), skip=0, bound='hoeffding', limit={})"
    assert main(["eval", *small, "--certify", test.format(3.0)]) == 0
    assert "passed: mean cost" in capsys.readouterr().out
    assert main(["eval", *small, "--certify", test.format(3.0)]) == 2
    assert "were already used in a test (runs/safety.jsonl)" in capsys.readouterr().err
