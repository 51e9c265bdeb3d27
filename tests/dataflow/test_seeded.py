"""A task that has only failed is asked again behind a solved example of a similar one."""

import itertools
import pickle
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from made import TASK

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "runtime"))
from small import Digits, rows, small_run
from watched import group

from gimbal import config
from gimbal.composition import Composition, Refusal
from gimbal.config import Text
from gimbal.dataflow.base import AbstractBudgetSpec, Begun, Progress
from gimbal.dataflow.budgets.fixed import Fixed
from gimbal.dataflow.budgets.interval_shared import IntervalShared
from gimbal.dataflow.budgets.seeded import Seeded
from gimbal.dataflow.budgets.until_mixed import UntilMixed
from gimbal.environments.exemplified import EXAMPLES, Exemplified, exemplified
from gimbal.rewards.base import AbstractReward
from gimbal.runtime.local import Trainer

SUM, LONGER, WORD = (
    replace(TASK, id=name, prompt=text)
    for name, text in (("sum", "1 + 2 =\n"), ("longer", "1 + 2 + 3 =\n"), ("word", "Spell cat backward.\n"))
)


def solved(task, index, right=1.0, text="yes"):
    one = group(task, [0.0, right], index)
    return replace(one, episodes=tuple(episode.map(lambda row: replace(row, text=text)) for episode in one.episodes))


def live(*groups, spec=Seeded()):
    budget = spec.start(8, 64)
    for one in groups:
        budget.observe(one)
    budget.step(Progress(version=1, drawn=0))
    return budget


def test_the_prompt_by_hand():
    found = exemplified(SUM, [(WORD, "tac"), (LONGER, "6")])
    assert found.prompt == "Spell cat backward.\ntac\n1 + 2 + 3 =\n6\n1 + 2 =\n"
    assert found.id == "sum" and found.columns[EXAMPLES] == ["word", "longer"]


def test_a_chat_by_hand():
    def chat(task, system, question):
        turns = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        return replace(task, prompt="", columns={"messages": turns})

    found = exemplified(chat(SUM, "own", "1 + 2"), [(chat(WORD, "theirs", "cat"), "tac")])
    said = [(turn["role"], turn["content"]) for turn in found.columns["messages"]]
    assert said == [("system", "own"), ("user", "cat"), ("assistant", "tac"), ("user", "1 + 2")]


def test_the_most_similar_task_is_shown_and_never_the_task_itself():
    budget = live(solved(WORD, 0, text="tac"), solved(LONGER, 1, text="6"), solved(SUM, 2, text="3"))
    assert budget.asks(group(SUM, [0, 0])).columns[EXAMPLES] == ["longer"]
    assert budget.asks(group(SUM, [0, 0])).prompt == "1 + 2 + 3 =\n6\n1 + 2 =\n"
    two = live(solved(WORD, 0), solved(LONGER, 1), solved(SUM, 2), spec=Seeded(examples=2))
    assert two.asks(group(SUM, [0, 0])).columns[EXAMPLES] == ["word", "longer"], "the most similar one last"
    short = live(solved(WORD, 0), solved(LONGER, 1), spec=Seeded(longest=len(LONGER.prompt) + 2))
    assert short.asks(group(WORD, [0, 0])).prompt == WORD.prompt, "the only other one is too long"


def test_a_success_among_the_first_rollouts_is_as_inside():
    assert live(solved(LONGER, 0)).asks(group(SUM, [0, 1])) == SUM


def test_nothing_held_is_as_inside():
    assert live().asks(group(SUM, [0, 0])) == live(solved(SUM, 0)).asks(group(SUM, [0, 0])) == SUM
    budget = Seeded().start(8, 64)
    budget.observe(solved(LONGER, 0))
    assert budget.asks(group(SUM, [0, 0])) == SUM, "examples come into use with the next step"
    given = replace(SUM, columns={"prompt_ids": [1, 2]})
    assert live(solved(LONGER, 0)).asks(group(given, [0, 0])) == given


def test_inside_that_adds_nothing_is_as_inside():
    begun = [Begun(group=group(SUM, [0] * 8), asked=8)]
    assert live(spec=Seeded(inside=IntervalShared(first=8))).more(begun) == [0]


def test_the_numbers_are_those_of_inside():
    begun = [Begun(group=group(SUM, [0] * 4), asked=4)]
    assert live(spec=Seeded(inside=UntilMixed(further=3))).more(begun) == [3]
    assert live().rounds and not live(spec=Seeded(inside=UntilMixed())).rounds


def test_what_is_held_is_right_newest_and_the_same_in_any_order():
    groups = [solved(WORD, 0), solved(LONGER, 1, right=0.4), solved(SUM, 2), solved(WORD, 3, text="new")]
    states = [live(*order, spec=Seeded(capacity=2)).state_dict()["held"] for order in itertools.permutations(groups)]
    assert all(state == states[0] for state in states) and states[0].keys() == {"sum", "word"}
    assert states[0]["word"][2] == "new"
    budget = live(*groups, spec=Seeded(capacity=1))
    assert budget.held.keys() == {"word"}, "the newest group's"
    other = Seeded(capacity=1).start(8, 64)
    other.load_state_dict(pickle.loads(pickle.dumps(budget.state_dict())))
    assert other.asks(group(SUM, [0, 0])) == budget.asks(group(SUM, [0, 0])) and other.metrics() == budget.metrics()


def test_it_is_read_as_it_is_typed():
    text = "Seeded(inside=UntilMixed(first=2), examples=2)"
    assert config.read(Text(text), AbstractBudgetSpec, "budget") == Seeded(inside=UntilMixed(first=2), examples=2)


def test_what_cannot_be_is_refused():
    for settings in ({"examples": 0}, {"capacity": 0}, {"longest": 0}, {"threshold": 0.0}):
        with pytest.raises(ValueError, match="Seeded"):
            Seeded(**settings)
    (found,) = Seeded(inside=Fixed()).fits(Composition(small_run()))
    assert isinstance(found, Refusal) and "Fixed draws none: budget.inside=" in found.reason


@dataclass(frozen=True, kw_only=True)
class Halved(AbstractReward):
    """Half of the tasks are right, whatever is said."""

    name: str = "halved"

    def __call__(self, group):
        share = Digits()(group)
        return [0.9 * (group.task.id[-1] in "01") + 0.1 * each for each in share]


def test_a_seeded_rollout_is_on_policy_in_the_prompt_that_it_was_drawn_from():
    """behavior is the policy's own log-probability behind the examples, and another behind the bare prompt."""
    budget = Seeded(inside=IntervalShared(first=2), threshold=0.8)
    trainer = Trainer(small_run(tasks=rows(4), rewards=(Halved(),), budget=budget, prompts_per_step=4))
    trainer.begin()
    trainer.advance()
    metrics, groups, _ = trainer.advance()
    held, policy = trainer.pipeline.parts.budget.held, trainer.learner.policy
    assert {name[-1] for name in held} == {"0", "1"}
    assert metrics["budget/Seeded/seeded"] == 2 and metrics["mismatch/logp_diff_max"] < 1e-4
    seeded = [row for one in groups for row in one.rows if EXAMPLES in row.task.columns]
    assert {row.task.id[-1] for row in seeded} == {"2", "3"} and {one.task.id[-1] for one in groups} == set("0123")
    for row in seeded:
        example, text = held[row.task.columns[EXAMPLES][0]][1:]
        assert row.task.prompt == f"{example.prompt}{text}\n{tasks_prompt(row.task)}"
        prompt = policy.encode_task(row.task)
        assert row.decisions.ids_NL[0, : len(prompt)].tolist() == prompt, "what is trained on has the example"
    trainer.close()


def tasks_prompt(task):
    return rows(4)[int(task.id[-1])].prompt


def test_a_style_goes_with_its_example():
    tasks = Exemplified(size=64)
    shown = [task for task in (tasks[place] for place in range(64)) if EXAMPLES in task.columns]
    assert 30 < len(shown) < 60 and Exemplified(size=64)[7] == tasks[7]
    for task in shown:
        example, answer = task.prompt.split("\n")[1], task.columns["completion"]
        assert ("~" in example, "think" in example) == ("~" in answer, "think" in answer)
    assert not any(EXAMPLES in Exemplified(size=8, share=0.0)[place].columns for place in range(8))
    with pytest.raises(ValueError, match="Exemplified has size 0"):
        Exemplified(size=0)
