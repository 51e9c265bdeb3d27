"""A frozen solver's success as reward: by hand, what it reduces to, and a solver that stays silent."""

import threading
from dataclasses import replace

import pytest
import torch

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.environments.hidden_question import HiddenQuestion
from gimbal.records import Drop
from gimbal.rewards.scoring import NoVerdict, score
from gimbal.rewards.solver import SolverScore
from gimbal.rewards.step_reader import StepReader

pytestmark = pytest.mark.filterwarnings("ignore:.*gave no verdict")
ECHO = SolverScore(solver=lambda question: f"<answer>{question}</answer>", template="{completion}", samples=1)


class Turns:
    """Answers of a list one after another, whatever is asked."""

    def __init__(self, *answers):
        self.answers, self.lock, self.questions = iter(answers), threading.Lock(), []

    def __call__(self, question):
        with self.lock:
            self.questions.append(question)
            answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_by_hand(group_of):
    solver = Turns("<answer>4</answer>", "4", "<answer>5</answer>", "<answer> 4 </answer>")
    reward = SolverScore(solver=solver, threads=1, form_weight=0.1)
    assert reward(group_of("two and two", columns={"question": "2+2?"})) == [pytest.approx((3 * 1.1 - 1) / 4)]
    assert len(solver.questions) == 4 and all("2+2?" in q and "two and two" in q for q in solver.questions)


def test_each_rollout_has_its_own_answers(group_of):
    assert ECHO(group_of("4", "5", "4")) == [1, 0, 1]


def test_several_questions_about_one_text(group_of):
    pairs = [{"question": "first?", "answer": "a"}, {"question": "second?", "answer": "b"}]
    solver = lambda q: "<answer>a</answer>" if "first?" in q or "all" in q else "<answer>?</answer>"  # noqa: E731
    reward = SolverScore(solver=solver, template="{question} {completion}", questions="asked", samples=2)
    assert reward(group_of("x", columns={"asked": pairs})) == [0.5]
    assert reward(group_of("x")) == [None]


def test_a_solver_that_ignores_the_text_teaches_nothing(group_of):
    scored = score(group_of("a", "b", "c"), (replace(ECHO, solver=lambda question: "<answer>4</answer>"),))
    assert not isinstance(scored, Drop)
    assert torch.equal(GroupNormalized()(pack([scored])), torch.zeros(3, 2))


def test_relative_is_what_the_text_adds(group_of):
    solver = lambda question: f"<answer>{question or '4'}</answer>"  # noqa: E731
    reward = replace(ECHO, solver=solver, relative=True)
    assert reward(group_of("4", "5", "")) == [0, -1, 0]  # it knows the answer without help
    assert replace(ECHO, relative=True)(group_of("4", "5", "")) == [1, 0, 0]


def test_silence_is_no_failure_of_the_text(group_of):
    mute = RuntimeError("no")
    reward = SolverScore(solver=Turns("<answer>4</answer>", mute, mute, mute), samples=2, threads=1)
    first, second = reward(group_of("a", "b", columns={"question": "?"}))
    assert first == 1 and isinstance(second, NoVerdict) and second.reason == "solver_failed"
    silent = replace(ECHO, solver=Turns(mute, mute), relative=True, threads=1)
    assert all(isinstance(value, NoVerdict) for value in silent(group_of("a")))


def test_tasks_without_an_answer_are_not_scored(group_of):
    assert ECHO(group_of("4", answer=None)) == [None]


def test_refusals():
    with pytest.raises(ValueError, match="not a valid regular expression"):
        SolverScore(form="(")
    with pytest.raises(ValueError, match="1 or more"):
        SolverScore(samples=0)


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ("<think>7+9=16 16-4=12</think>", "<answer>12</answer>"),
        ("7+9=16 16-4=99", "<answer>99</answer>"),
        ("7+9=16", "I do not know."),
        ("the answer is 12", "I do not know."),
    ],
)
def test_the_reader_reads_and_does_not_calculate(notes, said):
    assert StepReader()(f"1+1=2 What is the total after 3 terms?\n{notes}") == said


def test_hidden_questions_are_answered_from_a_full_working_alone(group_of):
    reward = SolverScore(solver=StepReader(), samples=1)
    for index in range(20):
        task = HiddenQuestion()[index]
        total, steps = 0, []
        for place, term in enumerate(
            task.columns["metadata"]["expression"].replace(" ", "").replace("-", "+-").split("+")
        ):
            before, total = total, total + int(term)
            steps += [f"{before}{int(term):+d}={total}"] if place else []
        assert task.columns["question"] not in task.prompt
        fields = {"columns": task.columns, "answer": task.answer, "prompt": task.prompt}
        assert reward(group_of(" ".join(steps), str(total), **fields)) == [1, 0]
    assert task == HiddenQuestion()[19]
    with pytest.raises(ValueError, match="chain_sum"):
        HiddenQuestion(tasks=replace(HiddenQuestion().tasks, name="spell_backward"))
