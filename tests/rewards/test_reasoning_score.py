import json

import pytest

from gimbal.environments.reasoning import ReasoningGym
from gimbal.records import Group
from gimbal.rewards._reasoning import _score
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.scoring import Broken, score
from gimbal.sandbox.worker import WorkerError


@pytest.fixture(scope="module")
def reward():
    live = ReasoningScore().open()
    yield live
    live.close()


def _group(task, group_of, *texts) -> Group:
    return group_of(*texts, id=task.id, answer=task.answer, source=task.source, columns=task.columns)


def test_scores_are_those_of_the_library(reward, group_of):
    task = ReasoningGym(name="chain_sum", seed=3, parameters={"min_terms": 3})[5]
    answer = task.answer
    texts = [
        f"Well: <answer>{answer}</answer>",
        f"<answer>0</answer> or rather <answer> {answer} </answer>",  # the last one counts
        f"<answer>+0{answer}.0</answer>" if not answer.startswith("-") else f"<answer>{answer}.0</answer>",
        f"<answer>{answer}7 7</answer>",  # contains the answer: the library's fraction
        "<answer>1000000</answer>",
        answer,  # no tags
        f"<answer>{answer}",  # not closed
        "",
    ]
    fraction = len(answer) / (len(answer) + 3)
    assert reward(_group(task, group_of, *texts)) == [1, 1, 1, pytest.approx(fraction), 0, 0, 0, 0]


def test_parameters_reach_the_scorer_of_any_dataset(reward, group_of):
    for name in ("countdown", "letter_counting", "basic_arithmetic"):
        task = ReasoningGym(name=name, size=3)[0]
        right = task.columns["metadata"]["expression"] if name == "countdown" else task.answer
        assert reward(_group(task, group_of, f"<answer>{right}</answer>", "<answer>?</answer>"))[0] == 1.0


def test_a_text_that_breaks_the_scorer_scores_0_and_is_counted(reward, group_of):
    task = ReasoningGym(name="prime_factorization", size=3)[0]
    group = _group(task, group_of, f"<answer>{task.answer}</answer>", "<answer>two times three</answer>")
    scored = score(group, [reward])
    assert isinstance(scored, Group)
    assert [r.score for r in scored.rollouts] == [1.0, 0.0]
    assert [r.scores["error"] for r in scored.rollouts] == [0.0, 1.0]


def test_a_scorer_that_gives_nan_counts_as_broken():
    assert _score(lambda answer, entry: float("nan"), {}, "x") is None
    assert _score(lambda answer, entry: 0.25, {}, "x") == 0.25


def test_a_text_that_hangs_the_scorer_costs_its_neighbours_nothing(group_of):
    class Hanging:
        """Stands for the worker: it dies whenever the text "hang" is among those it gets."""

        calls = 0

        def __call__(self, name, parameters, entry, texts, opening, closing):
            self.calls += 1
            if "hang" in texts:
                raise WorkerError("did not return")
            return [1.0] * len(texts)

    reward = ReasoningScore()
    vars(reward)["_worker"] = worker = Hanging()
    task = ReasoningGym(size=1)[0]
    values = reward(_group(task, group_of, "a", "hang", "b"))
    assert values == [1.0, 0.0, 1.0] and isinstance(values[1], Broken) and worker.calls == 4


def test_a_task_of_another_source_is_refused(reward, group_of):
    with pytest.raises(ValueError, match=r"reasoning-gym only, and task t1 is none: .*reward=file\.py:function"):
        reward(group_of("<answer>4</answer>"))


@pytest.mark.slow
def test_other_delimiters(group_of):
    task = ReasoningGym(name="chain_sum", size=1)[0]
    reward = ReasoningScore(opening="=", closing="")
    assert reward(_group(task, group_of, f"1+1=2, so = {task.answer}", task.answer)) == [1.0, 0.0]
    reward.close()


def test_columns_are_plain_data():
    assert json.dumps(dict(ReasoningGym(size=1)[0].columns))
