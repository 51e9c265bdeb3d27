"""The claim on verdicts of one judge: its arms differ in what is climbed, and slopes agree where both pictures are alike."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import shown

from gimbal.environments.shown_pictures import ShownPictures
from gimbal.recipes.papers.denoising.one_reward import one_reward
from gimbal.rewards.pair_judge import AskedSamples
from gimbal.rewards.shown_digits import DigitJudge


def test_what_is_climbed_is_all_that_differs():
    judge, scores, base = (shown.run_of(arm, 1e-3, 2) for arm in shown.TUNED.arms)
    assert judge == replace(scores, rewards=judge.rewards) == replace(base, steps=shown.STEPS) and base.steps == 0
    assert judge.rewards == one_reward().rewards and judge.update.coef == shown.PULL == 0.1
    assert judge.held_out.tasks.seed == 1002 and judge.held_out.tasks.kept_out


def test_scores_have_the_slope_of_verdicts_at_a_draw():
    tasks = [ShownPictures(seed=4)[i] for i in range(4)]
    asked = AskedSamples(
        label_N=torch.tensor([task.columns.get("label", -1) for task in tasks]),
        given_ND=torch.tensor([task.columns["given"] for task in tasks]),
    )
    x_ND = (torch.rand(4, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1).requires_grad_()
    slopes = [
        torch.autograd.grad(judge.gain(x_ND, x_ND.detach(), asked).sum(), x_ND)[0]
        for judge in (DigitJudge(limit=0.9), shown.Scores())
    ]
    torch.testing.assert_close(*slopes)
    assert float(slopes[0].abs().sum()) > 0
