"""Samples that follow one that failed do not train."""

import math
from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

import made

from gimbal.dataflow.filters.unspoilt import Unspoilt
from gimbal.records import Episode, Group, Task
from gimbal.rewards.digits import DigitClass, digits
from gimbal.rewards.samples import AbstractSampleReward

TASK = Task(id="t", columns={"label": 7})


@dataclass(frozen=True, kw_only=True)
class Brightness(AbstractSampleReward):
    """The first pixel, and whether the class was told."""

    name: str = "bright"

    def of_samples(self, x_ND, label_N):
        assert label_N.tolist() == [7] * len(x_ND)
        return x_ND[:, 0]


def stream(*values, sample=0):
    """An episode of samples with these first pixels."""
    rows = []
    for place, value in enumerate(values):
        decisions = made.finished([0.0], [0], side=2, steps=2).decisions
        decisions.state_NXD[0, -1, 0, 0, 0] = value
        rows.append(made.rollout(TASK, decisions=decisions, sample=sample, row=place))
    return Episode(rows=tuple(rows))


def trains(group):
    return [[bool(row.mask_S.all()) for row in episode.rows] for episode in group.episodes]


def test_what_follows_the_first_failure_is_masked_and_the_failure_itself_trains():
    group = Group(
        index=0, task=TASK, episodes=(stream(1, 0, 1, 1), stream(1, 1, 1, 0, sample=1), stream(0, 1, sample=2))
    )
    found = Unspoilt(judge=Brightness())(group)
    assert trains(found) == [[True, True, False, False], [True] * 4, [True, False]]
    rows = [row for episode in found.episodes for row in episode.rows]
    assert all(row.mask_S.any() == row.mask_S.all() for row in rows)
    before = [row for episode in group.episodes for row in episode.rows]
    assert all(row.decisions is other.decisions for row, other in zip(rows, before, strict=True)), (
        "rows stay as context"
    )
    assert all(bool(row.mask_S.all()) for row in before), "what is not the filter's is left alone"


def test_without_a_failure_or_with_one_sample_the_group_is_the_same():
    for episode in (stream(1, 1, 1), stream(0)):
        group = Group(index=0, task=TASK, episodes=(episode,))
        assert trains(Unspoilt(judge=Brightness())(group)) == trains(group) == [[True] * len(episode.rows)]


def test_at_a_bound_that_nothing_passes_only_first_samples_train_and_the_bound_itself_fails():
    group = Group(index=0, task=TASK, episodes=(stream(1, 1, 1),))
    assert trains(Unspoilt(judge=Brightness(), least=math.inf)(group)) == [[True, False, False]]
    assert trains(Unspoilt(judge=Brightness(), least=1.0)(group)) == [[True, False, False]]
    assert trains(Unspoilt(judge=Brightness(), least=-math.inf)(group)) == [[True, True, True]]


def test_the_usual_judge_reads_the_class_of_the_task():
    data_KD, label_K = digits()
    sevens, ones = data_KD[label_K == 7][:2], data_KD[label_K == 1][:1]
    judge = Unspoilt().judge
    assert (judge.of_samples(sevens, torch.tensor([7, 7])) > 0.5).all()
    assert (judge.of_samples(ones, torch.tensor([7])) < 0.5).all() and judge == DigitClass(scale="probability")


def test_words_are_no_samples():
    group = Group(index=0, task=TASK, episodes=(Episode.of(made.rollout(TASK, text="seven")),))
    with pytest.raises(ValueError, match="finished samples"):
        Unspoilt()(group)
