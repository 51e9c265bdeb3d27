"""Votes: the pseudo-label, its measures, the phase boundary, and maj@k."""

import made
import pytest

from gimbal.records import Group, Task
from gimbal.rewards.majority import Majority, majority
from gimbal.runtime.evaluate import voted


def group(*answers, answer="5"):
    task = Task(id="t", answer=answer)
    said = ["no tags" if a is None else f"<think>{n}</think><answer> {a} </answer>" for n, a in enumerate(answers)]
    return Group.of(0, task, [made.rollout(task, sample=n, text=text) for n, text in enumerate(said)])


def test_who_agrees_with_the_majority_is_paid_and_the_first_seen_wins_ties():
    assert Majority()(group("5", "7", "5", None)) == [1, 0, 1, 0]
    assert Majority()(group("7", "5", "5", "7")) == [1, 0, 0, 1]
    assert Majority()(group(None, None)) == [0, 0], "nobody answers, nobody is right"
    assert Majority()(group("9")) == [1] and Majority()(group("9", "9")) == [1, 1]
    assert majority([]) is None


def test_no_label_is_read_but_by_the_measures():
    unlabelled = group("5", "7", "5", answer=None)
    assert Majority()(unlabelled) == [1, 0, 1] and Majority(measure="share")(unlabelled) == [2 / 3] * 3
    for measure in ("label", "truth"):
        assert Majority(measure=measure)(unlabelled) == [None] * 3


def test_rewards_are_right_more_often_than_labels():
    wrong = group("7", "7", "5", "8")
    assert Majority(measure="label")(wrong) == [0] * 4
    assert Majority(measure="truth")(wrong) == [0, 0, 0, 1], "8 differs from both"
    right = group("5", "5", "7", None)
    assert Majority(measure="label")(right) == [1] * 4 == Majority(measure="truth")(right)


@pytest.mark.parametrize("right_first", [0.5, 0.3])
def test_the_mode_of_the_policy_becomes_its_answer(right_first):
    """On a bandit of three answers, by the expected policy gradient: p goes to 1 if the right answer is the mode, else to 0."""
    chances = {"5": right_first, "7": 0.4, "9": 0.6 - right_first}
    for _ in range(40):
        votes = [name for name, p in chances.items() for _ in range(round(10 * p))]
        paid = dict(zip(votes, Majority()(group(*votes)), strict=True))
        mean = sum(p * paid.get(name, 0.0) for name, p in chances.items())
        grown = {name: p * (1 + 0.9 * (paid.get(name, 0.0) - mean)) for name, p in chances.items()}
        chances = {name: p / sum(grown.values()) for name, p in grown.items()}
    assert chances["5"] == pytest.approx(1.0 if right_first > 0.4 else 0.0, abs=0.01)


def test_maj_at_k_is_of_each_k_in_a_row():
    one = [("5", True), ("7", False), ("5", True), ("7", False)]
    two = [("7", False), ("7", False), ("5", True), ("5", True)]
    assert voted([one], [2, 4]) == {2: 1.0, 4: 1.0}, "a tie goes to the first seen"
    assert voted([two], [2, 4]) == {2: 0.5, 4: 0.0}
    assert voted([one, two], [2, 4]) == {2: 0.75, 4: 0.5}
    assert voted([[("5", True), (None, False), (None, False), (None, False)]], [4]) == {4: 1.0}, (
        "who says nothing has no vote"
    )
    assert voted([[(None, False)] * 2, [("5", True)] * 2], [2]) == {2: 0.5}
    assert voted([[(None, True)] * 4], [4]) == {}
