"""Rewards for digits that are drawn again from fewer pixels: against sums by hand."""

import math

import pytest
import torch
from test_samples import group_of

pytest.importorskip("sklearn", reason="scikit-learn is not installed: pip install -e '.[denoising]'")

from gimbal.environments.shown_pictures import ShownPictures
from gimbal.records import Task
from gimbal.rewards.digits import digits
from gimbal.rewards.refined_digits import TEXTURED, Fidelity, TextureAdaptive, textured

TASK = ShownPictures(kinds=("refine",), block=4, seed=1)[0]
PICTURE_D = torch.tensor(TASK.columns["picture"])


def of_picture(picture_D):
    return Task(id="own", columns={"picture": tuple(picture_D.tolist())})


def around(x_D, size=0.3, seed=0, count=5):
    return x_D + size * torch.randn(count, 64, generator=torch.Generator().manual_seed(seed))


def test_fidelity_is_the_psnr_of_pixels_from_minus_1_to_1():
    found = Fidelity()(group_of(torch.stack([PICTURE_D + 0.2, PICTURE_D - 0.02, PICTURE_D]), TASK))
    assert found == pytest.approx([20.0, 40.0, 10 * math.log10(4 / 4e-10)], abs=1e-3)
    assert Fidelity().weight == 0 and not Fidelity().decides


def test_a_pixel_is_textured_where_the_3x3_around_it_deviate():
    for row in (0, 700, 1500):
        x_HW = digits()[0][row].reshape(8, 8)
        count = 0
        for i in range(8):
            for j in range(8):
                near = [
                    float(x_HW[min(max(a, 0), 7), min(max(b, 0), 7)])
                    for a in (i - 1, i, i + 1)
                    for b in (j - 1, j, j + 1)
                ]
                mean = sum(near) / 9
                count += sum((x - mean) ** 2 for x in near) / 9 > TEXTURED**2
        assert textured(x_HW.flatten()) == count / 64
    assert textured(torch.full((64,), 0.7)) == 0


def test_the_score_weighs_places_between_the_best_and_the_worst_of_the_group():
    x_KD, share = around(PICTURE_D), textured(PICTURE_D)
    assert 0.3 < share < 0.7
    psnr = [10 * math.log10(4 / (x_D - PICTURE_D).square().mean()) for x_D in x_KD]
    near = [-float((digits()[0][::2] - x_D).square().sum(-1).sqrt().min()) for x_D in x_KD]

    def scaled(values):
        return [(x - min(values)) / (max(values) - min(values)) for x in values]

    wanted = [(1 - share) * p + share * n for p, n in zip(scaled(psnr), scaled(near), strict=True)]
    assert TextureAdaptive()(group_of(x_KD, TASK)) == pytest.approx(wanted, abs=1e-4)


def test_a_smooth_picture_is_ranked_by_fidelity_and_one_that_is_all_texture_by_the_look_of_the_real():
    smooth_D, board_D = torch.zeros(64), ((torch.arange(8)[:, None] + torch.arange(8)) % 2).float().flatten() * 2 - 1
    assert textured(smooth_D) == 0 and textured(board_D) > 0.9
    x_KD = torch.stack([smooth_D + 0.1, smooth_D + 0.5, digits()[0][0]])
    assert TextureAdaptive()(group_of(x_KD, of_picture(smooth_D)))[0] == 1
    x_KD = torch.stack([board_D, board_D * 0.5, digits()[0][0]])
    score = TextureAdaptive()(group_of(x_KD, of_picture(board_D)))
    assert score[2] == max(score) >= textured(board_D), "a real digit, however far from the board"


def test_samples_that_are_alike_earn_nothing():
    assert TextureAdaptive()(group_of(PICTURE_D.expand(4, 64), TASK)) == [0, 0, 0, 0]


@pytest.mark.parametrize("reward", [Fidelity(), TextureAdaptive()])
def test_a_task_without_a_whole_picture_is_refused(reward):
    with pytest.raises(ValueError, match=r"column picture, which task bare does not have: tasks=ShownPictures"):
        reward.accepts(Task(id="bare"))
    reward.accepts(TASK)
