"""SolverScore beyond one question: a part of the text (REVISOR), the policy as solver, drawn questions with options (CapRL)."""

import copy
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "runtime"))
from small import small_run

from gimbal.advantages.estimators.group_normalized import GroupNormalized
from gimbal.dataflow.packing import pack
from gimbal.rewards.exact import ExactAnswer
from gimbal.rewards.scoring import answered, follow_ups, score
from gimbal.rewards.solver import SolverScore, curated
from gimbal.runtime.evaluate import evaluate
from gimbal.runtime.local import Trainer

THOUGHT = ("<think>", "</think>")
SELF = SolverScore(solver=None, template="{prompt}{completion}=", part=THOUGHT, samples=2, name="evidence", weight=0.3)
FACTS = [{"question": key, "answer": value} for key, value in (("colour", "red"), ("size", "big"), ("form", "round"))]


def look_up(question):
    """A blind reader: finds "key=value" below its question."""
    key, _, caption = question.partition("\n")
    found = [word.split("=")[1] for word in caption.split() if word.split("=")[0] == key]
    return f"<answer>{found[0] if found else '?'}</answer>"


CAPTION = SolverScore(solver=look_up, template="{question}\n{completion}", questions="facts", samples=1)


def test_only_the_part_is_shown_and_a_text_without_it_scores_0(group_of):
    echo = SolverScore(solver=lambda q: f"<answer>{q}</answer>", template="{completion}", part=THOUGHT, samples=1)
    assert echo(group_of("<think>4</think> it is 5", "4", "<think>5</think>4")) == [1, 0, 0]


def test_relative_of_a_text_without_the_part_is_0(group_of):
    knows = lambda q: "<answer>4</answer>"  # noqa: E731
    reward = SolverScore(solver=knows, template="{completion}", part=THOUGHT, samples=1, relative=True)
    assert reward(group_of("<think>x</think>", "nothing")) == [0, 0]


def test_the_policy_is_asked_by_follow_ups(group_of):
    group = group_of("<think>a</think>", "no evidence", "<think>b</think>")
    tasks = follow_ups(group, (ExactAnswer(), SELF))
    assert [task.prompt for task in tasks] == ["2+2=a=", "2+2=a=", "2+2=b=", "2+2=b="]
    assert len({task.id for task in tasks}) == 4
    right, wrong = "<answer>4</answer>", "<answer>5</answer>"
    whole = answered(group, [right, wrong, right, right], (ExactAnswer(), SELF))
    assert whole.replies == {"evidence": (right, wrong, right, right)} and SELF(whole) == [0.5, 0, 1]


def test_reduces_to_the_outcome_with_weight_0(group_of):
    group = group_of("<think>a</think><answer>4</answer>", "<answer>5</answer>", "<answer>4</answer>")
    group = answered(group, ["<answer>4</answer>"] * 2, (SELF,))
    both = score(group, (ExactAnswer(), SolverScore(**{**vars(SELF), "weight": 0.0})))
    alone = score(group, (ExactAnswer(),))
    torch.testing.assert_close(GroupNormalized()(pack([both])), GroupNormalized()(pack([alone])), atol=1e-6, rtol=0)


def test_decoupled_attribution_by_hand(group_of):
    """0.6 for the answer, 0.3 for evidence that does by itself (DADR): a right guess is worth less than a right working."""
    group = group_of("<think>a</think><answer>4</answer>", "<answer>4</answer>", "<think>b</think><answer>5</answer>")
    group = answered(group, ["<answer>4</answer>"] * 4, (SELF,))
    scored = score(group, (ExactAnswer(weight=0.6), SELF))
    assert [rollout.score for rollout in scored.rollouts] == pytest.approx([0.9, 0.6, 0.3])


def test_evidence_that_is_everything_measures_solvability(group_of):
    group = group_of("<think>all of it</think>", "<think>all of it</think>")
    replies = ["<answer>4</answer>", "<answer>5</answer>"] * 2
    assert SELF(answered(group, replies, (SELF,))) == [0.5, 0.5]


def test_recall_of_asked_facts_with_a_perfect_reader(group_of):
    group = group_of("colour=red size=big form=round", "size=big", "", columns={"facts": FACTS})
    assert CAPTION(group) == [1, pytest.approx(1 / 3), 0]


def test_draws_are_an_unbiased_estimate_and_repeat_themselves(group_of):
    drawn = SolverScore(**{**vars(CAPTION), "draws": 4})
    group = group_of(*["size=big"] * 400, columns={"facts": FACTS})
    scores = drawn(group)
    assert scores == drawn(group) and len(set(scores)) > 2  # other questions for each rollout
    assert sum(scores) / 400 == pytest.approx(1 / 3, abs=0.04)  # four deviations of the mean are 0.047


def test_options_are_lettered_in_an_order_drawn_anew(group_of):
    seen = []

    def reader(question):
        seen.append(question)
        letter = next(line[0] for line in question.splitlines() if line.endswith(". red"))
        return f"<answer>{letter}</answer>"

    asked = [{"question": "colour", "answer": "red", "options": ["red", "blue", "green", "grey"]}]
    reward = SolverScore(solver=reader, template="{question}", questions="facts", samples=40)
    assert reward(group_of("", columns={"facts": asked})) == [1.0]
    assert {q.splitlines()[1] for q in seen} == {"A. red", "A. blue", "A. green", "A. grey"}
    first = SolverScore(**{**vars(reward), "solver": lambda q: "<answer>A</answer>"})
    assert (
        0 < first(group_of("", columns={"facts": asked}))[0] < 0.6
    )  # a reader that always says A gains by chance alone


def test_curated_drops_what_is_leaky_or_unanswerable():
    image = {"colour": "red", "size": "big"}
    questions = [*FACTS, {"question": "sky", "answer": "blue"}]
    assert curated(questions, lambda q: image.get(q, "?"), lambda q: "big") == FACTS[:1]


def test_wrong_draws_are_refused():
    for wrong in ({"draws": -1}, {"draws": 2}, {"draws": 2, "questions": "q", "relative": True}):
        with pytest.raises(ValueError, match="draws"):
            SolverScore(**wrong)


LIVE = SolverScore(solver=None, template="{prompt}<think>{completion}</think>", samples=1, name="evidence")


def live_run(**changes):
    rows = small_run().tasks.rows
    tasks = type(small_run().tasks)(rows=[{**row, "answer": "7"} for row in rows])
    return small_run(tasks=tasks, rewards=(*small_run().rewards, LIVE), num_generations=2, **changes)


def test_a_run_asks_its_own_policy_and_does_not_train_on_the_answers(single_thread):
    trainer = Trainer(live_run())
    trainer.begin()
    metrics, groups, batch = trainer.advance()
    assert batch.shape[0] == 4 and all(len(group.replies["evidence"]) == 2 for group in groups)
    assert trainer.pipeline.generated["rollouts"] == 8  # what they cost is counted
    assert metrics["reward/evidence/mean"] >= 0


def test_a_run_goes_on_to_the_same_bits_with_answers_in_flight(single_thread):
    first, second = Trainer(live_run()), Trainer(live_run())
    first.begin()
    second.begin()
    pipeline = first.pipeline
    pipeline._dispatch(0)
    while not any(flight.answers for flight in pipeline.outstanding.values()):
        for finished in pipeline.parts.engine.step():
            pipeline._collect(finished)
    second.pipeline.load_state_dict(copy.deepcopy(pipeline.state_dict()))
    batches = [trainer.pipeline.next_batch(0)[0] for trainer in (first, second)]
    assert [g.replies for g in batches[0]] == [g.replies for g in batches[1]]
    assert [r.score for g in batches[0] for r in g.rollouts] == [r.score for g in batches[1] for r in g.rollouts]


def test_an_evaluation_asks_too(single_thread):
    trainer = Trainer(live_run())
    trainer.begin()
    engine = trainer.run.engine.start(trainer.learner.policy)
    engine.load(0, trainer.learner.policy.state_dict())
    tasks = live_run().tasks
    result = evaluate(
        engine, type(tasks)(rows=tasks.rows[:2]), trainer.rewards, trainer.run.sampling, samples=2, seed=0
    )
    assert result.tasks == 2 and engine.in_flight == 0
