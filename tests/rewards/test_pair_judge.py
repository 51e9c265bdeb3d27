"""Judges of pairs: the score by hand, its limiting cases, and what the judge of digits has learned."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

from test_samples import group_of

from gimbal.environments.shown_pictures import ShownPictures
from gimbal.records import Task
from gimbal.rewards.digits import digits
from gimbal.rewards.pair_judge import AbstractPairJudge, Asked
from gimbal.rewards.shown_digits import (
    CRITERIA,
    KINDS,
    OF,
    DigitJudge,
    UsablePicture,
    candidates,
    kinds_of,
    labelled,
    shares,
    taught,
)


@dataclass(frozen=True, kw_only=True)
class Levels(AbstractPairJudge):
    """P by the difference of the first and of the second number; the second criterion is only of tasks with a class."""

    name: str = "levels"

    def beats(self, x_ND, rival_ND, asked):
        beats_NE = (x_ND - rival_ND)[:, :2].sigmoid()
        return beats_NE.where(torch.stack([asked.label_N > -2, asked.label_N >= 0], -1), torch.nan)


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def asked(*labels):
    return Asked(label_N=torch.tensor(labels))


def test_the_score_is_the_mean_over_the_criteria_of_the_task():
    x_ND, rival_ND = torch.tensor([[1.0, -2, 9, 9], [1, -2, 9, 9]]), torch.tensor([[0.0, 1, 0, 0], [0, 1, 0, 0]])
    found = Levels().gain(x_ND, rival_ND, asked(3, -1)).tolist()
    assert found == pytest.approx([(sigmoid(1) + sigmoid(-3)) / 2, sigmoid(1)])


def test_a_sample_against_itself_is_one_half():
    x_ND = torch.randn(3, 4)
    assert Levels().gain(x_ND, x_ND, asked(0, 1, -1)).tolist() == [0.5] * 3
    tasks = [ShownPictures(seed=4)[i] for i in range(4)]
    picture_ND = torch.rand(4, 64)
    told = Asked(
        label_N=torch.tensor([task.columns.get("label", -1) for task in tasks]),
        given_ND=torch.tensor([task.columns["given"] for task in tasks]),
    )
    judge = DigitJudge(pairs=50)
    assert judge.gain(picture_ND, picture_ND, told).tolist() == [0.5] * 4
    beats_NE, back_NE = (judge.beats(*two, told) for two in ((picture_ND, -picture_ND), (-picture_ND, picture_ND)))
    assert torch.allclose((beats_NE + back_NE).nan_to_num(1), torch.ones(4, 3), atol=1e-5)


def test_a_limit_cuts_the_gradient_of_each_criterion_by_itself():
    x_ND = torch.tensor([[3.0, 0.5, 0, 0]], requires_grad=True)
    rival_ND = torch.zeros(1, 4)
    score_N = Levels(limit=0.9).gain(x_ND, rival_ND, asked(1))
    assert score_N.tolist() == pytest.approx([(0.9 + sigmoid(0.5)) / 2])
    slope_D = torch.autograd.grad(score_N.sum(), x_ND)[0][0]
    assert slope_D.tolist() == pytest.approx([0, sigmoid(0.5) * sigmoid(-0.5) / 2, 0, 0])
    below = Levels(limit=0.1).gain(x_ND, rival_ND, asked(1))
    assert float(torch.autograd.grad(below.sum(), x_ND)[0].abs().max()) == 0, "below every P: no gradient"
    for limit in (0.0, 1.5):
        with pytest.raises(ValueError, match="above 0 and at most 1"):
            Levels(limit=limit)


def test_in_a_group_the_others_are_the_rivals():
    level_K = [0.0, 1.0, 3.0]
    group = group_of(torch.tensor([[level, 0, 0, 0] for level in level_K]), Task(id="t"))
    wanted = [sum(sigmoid(own - other) for other in level_K if other != own) / 2 for own in level_K]
    assert Levels()(group) == pytest.approx(wanted) and sum(wanted) == pytest.approx(1.5)
    assert Levels()(group_of(torch.zeros(1, 4), Task(id="t"))) == [None], "one alone meets nobody"


def task_of(kind):
    return ShownPictures(kinds=(kind,), seed=7)[0]


def told(*tasks):
    return Asked(
        label_N=torch.tensor([task.columns.get("label", -1) for task in tasks]),
        given_ND=torch.tensor([task.columns["given"] for task in tasks]),
    )


def test_the_kind_of_task_is_read_from_what_is_asked():
    assert [KINDS[k] for k in kinds_of(told(*map(task_of, KINDS))).tolist()] == list(KINDS)
    judge, x_ND = DigitJudge(pairs=50), torch.zeros(3, 64)
    there_NE = ~judge.beats(x_ND, x_ND, told(*map(task_of, KINDS))).isnan()
    assert [[c for c, there in zip(CRITERIA, row, strict=True) if there] for row in there_NE.tolist()] == [
        [c for c in CRITERIA if c in OF[kind]] for kind in KINDS
    ]
    with pytest.raises(ValueError, match=r"these tasks show none: tasks=ShownPictures\(\)"):
        judge.beats(x_ND, x_ND, asked(1, 2, 3))


def test_the_programs_by_hand():
    data_KD, label_K = digits()
    fill, remove = task_of("fill"), task_of("remove")
    x_ND = torch.stack([torch.tensor(fill.columns["picture"]), torch.tensor(remove.columns["picture"])])
    known_ND = torch.tensor([fill.columns["given"], remove.columns["given"]])[:, 64:] > 0
    found_NE = shares(x_ND, told(fill, remove), slice(None))
    assert found_NE[0, 0] == 0 and found_NE[:, 1].tolist() == [0, 0], "the true picture is in the data, and keeps all"
    assert float(found_NE[1, 2]) == pytest.approx(-float(((x_ND[1] + 1) / 2)[~known_ND[1]].mean()))
    other_ND = x_ND + 0.3 * known_ND
    assert shares(other_ND, told(fill, remove), slice(None))[:, 1].tolist() == pytest.approx([-0.3, -0.3])
    near = float((other_ND[0] - data_KD[label_K == fill.columns["label"]]).norm(dim=-1).min())
    assert float(shares(other_ND, told(fill, remove), slice(None))[0, 0]) == pytest.approx(-near, rel=1e-4)


def test_which_pictures_are_usable():
    reward = UsablePicture()
    for kind in KINDS:
        task = task_of(kind)
        picture_D, known_D = torch.tensor(task.columns["picture"]), torch.tensor(task.columns["given"])[64:] > 0
        blank_D = torch.where(known_D, picture_D, -1)
        spoilt_D = torch.where(known_D, -picture_D, picture_D)
        pictures = torch.stack([picture_D, blank_D, spoilt_D])
        found = reward(group_of(pictures, task))
        assert found[2] == 0, "what was shown is not kept"
        assert kind == "remove" or found[0] == 1, "the true picture"
        assert kind != "remove" or found[1] == 1, "the square is background"
        rows = group_of(pictures[:1], task).rollouts
        assert reward.figures(rows) == {kind: found[0]}


def test_labelled_pairs_are_ordered_by_the_program_of_their_criterion():
    better_ND, worse_ND, what, criterion_N = labelled(KINDS, 60, 0)
    first_N, second_N = (
        shares(x_ND, what, slice(0, None, 2)).gather(1, criterion_N[:, None])[:, 0] for x_ND in (better_ND, worse_ND)
    )
    assert bool((first_N >= second_N).all()) and float((first_N > second_N).float().mean()) > 0.9
    assert [KINDS[k] for k in kinds_of(what).tolist()] == list(KINDS) * 20
    assert all(CRITERIA[c] in OF[KINDS[k]] for c, k in zip(criterion_N.tolist(), kinds_of(what).tolist(), strict=True))
    assert candidates(better_ND[:2], torch.ones(2, 64, dtype=torch.bool), np.random.default_rng(0)).shape == (2, 64)


@pytest.mark.slow
def test_a_judge_learns_which_of_two_is_better_of_the_kinds_it_was_taught():
    better_ND, worse_ND, what, criterion_N = labelled(KINDS, 600, 99)
    fill_N = kinds_of(what) == 0

    def right(kinds):
        judge = taught(kinds, 3000, 0)
        return (judge(better_ND, what, criterion_N) > judge(worse_ND, what, criterion_N)).float()

    every_N, only_N = right(KINDS), right(("fill",))
    assert every_N.mean() > 0.75 and only_N[fill_N].mean() > 0.7
    assert every_N[~fill_N].mean() > only_N[~fill_N].mean() + 0.05, "it has learned nothing of the others"


@pytest.mark.parametrize("fields", [{"kinds": ()}, {"kinds": ("erase",)}, {"pairs": 0}])
def test_settings_of_the_judge_that_are_refused(fields):
    with pytest.raises(ValueError, match="choose among fill, extend, remove, and at least one pair"):
        DigitJudge(**fields)
