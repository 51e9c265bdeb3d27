"""Judges of pairs: the score by hand, its limiting cases, and what the judge of digits has learned."""

import math
from dataclasses import dataclass

import pytest
import torch

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

from test_samples import group_of

from gimbal.environments.shown_pictures import ShownPictures
from gimbal.records import Task
from gimbal.rewards.digits import digits
from gimbal.rewards.pair_judge import AbstractPairJudge, AskedSamples
from gimbal.rewards.shown_digits import (
    CRITERIA,
    KINDS,
    OF,
    DigitJudge,
    UsablePicture,
    kinds_of,
    shares,
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
    return AskedSamples(label_N=torch.tensor(labels))


def test_the_score_is_the_mean_over_the_criteria_of_the_task():
    x_ND, rival_ND = torch.tensor([[1.0, -2, 9, 9], [1, -2, 9, 9]]), torch.tensor([[0.0, 1, 0, 0], [0, 1, 0, 0]])
    found = Levels().gain(x_ND, rival_ND, asked(3, -1)).tolist()
    assert found == pytest.approx([(sigmoid(1) + sigmoid(-3)) / 2, sigmoid(1)])


def test_a_sample_against_itself_is_one_half():
    x_ND = torch.randn(3, 4)
    assert Levels().gain(x_ND, x_ND, asked(0, 1, -1)).tolist() == [0.5] * 3
    tasks = [ShownPictures(seed=4)[i] for i in range(4)]
    picture_ND = torch.rand(4, 64)
    told = AskedSamples(
        label_N=torch.tensor([task.columns.get("label", -1) for task in tasks]),
        given_ND=torch.tensor([task.columns["given"] for task in tasks]),
    )
    judge = DigitJudge()
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
    """The first whose picture is of an odd row, so that it is at no distance from the data that judges it."""
    odd = {tuple(x_D.tolist()) for x_D in digits()[0][1::2]}
    tasks = ShownPictures(kinds=(kind,), seed=7)
    return next(task for task in tasks if task.columns["picture"] in odd)


def told(*tasks):
    return AskedSamples(
        label_N=torch.tensor([task.columns.get("label", -1) for task in tasks]),
        given_ND=torch.tensor([task.columns["given"] for task in tasks]),
    )


def test_the_kind_of_task_is_read_from_what_is_asked():
    assert [KINDS[k] for k in kinds_of(told(*map(task_of, KINDS))).tolist()] == list(KINDS)
    judge, x_ND = DigitJudge(), torch.zeros(3, 64)
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
    assert found_NE[0, 0] == 0 and found_NE[:, 1].tolist() == pytest.approx([0, 0], abs=1e-5), "the true picture"
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


def test_the_judge_is_the_programs_on_a_scale():
    """Of the even rows, where the usable ones are of the odd: P by hand, and its slope by central differences."""
    tasks = [task_of(kind) for kind in KINDS]
    x_ND, rival_ND = torch.rand(2, 3, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    found_NE = DigitJudge().beats(x_ND, rival_ND, told(*tasks))
    own_NE, other_NE = (shares(each, told(*tasks), slice(0, None, 2)) for each in (x_ND, rival_ND))
    for n, kind in enumerate(KINDS):
        for e, (criterion, scale) in enumerate(zip(CRITERIA, (0.5, 0.05, 0.1), strict=True)):
            if criterion in OF[kind]:
                assert float(found_NE[n, e]) == pytest.approx(
                    sigmoid(float(own_NE[n, e] - other_NE[n, e]) / scale), abs=1e-4
                )
            else:
                assert found_NE[n, e].isnan()
    x_ND = x_ND.double().requires_grad_()

    def gain(x_ND):
        return (
            DigitJudge()
            .gain(x_ND, rival_ND.double(), AskedSamples(label_N=what.label_N, given_ND=what.given_ND.double()))
            .sum()
        )

    what = told(*tasks)
    slope_ND = torch.autograd.grad(gain(x_ND), x_ND)[0]
    with torch.no_grad():
        for n, pixel in ((0, 3), (1, 40), (2, 27), (2, 5)):
            step = torch.zeros_like(x_ND)
            step[n, pixel] = 1e-5
            assert float(slope_ND[n, pixel]) == pytest.approx(
                float(gain(x_ND + step) - gain(x_ND - step)) / 2e-5, abs=1e-6
            )
    assert float(slope_ND.abs().sum()) > 0
