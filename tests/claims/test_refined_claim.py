"""The claim on finer pictures: arms that differ in what they are named after, at equal samples, and its figures by hand."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("diffusers", reason="diffusers is not installed: pip install -e '.[denoising]'")

sys.path.insert(0, str(Path(__file__).parents[2] / "claims"))
import refined

from gimbal.rewards.digits import digits


def test_arms_differ_in_what_they_are_named_after():
    runs = {arm: refined.run_of(arm, 3e-5, 2) for arm in refined.TUNED.arms}
    group, pairs = runs[refined.GROUP], runs[refined.PAIRS]
    assert group == runs[refined.BASE] and (group.sampling.strength, group.sampling.told) == (0.8, 0.75)
    assert replace(pairs, prompts_per_step=32, num_generations=6, update=group.update) == group
    assert replace(pairs.update, beta=group.update.beta) == group.update
    assert pairs.prompts_per_step * pairs.num_generations == group.prompts_per_step * group.num_generations == 192


def test_a_pair_is_weighed_as_in_diffusion_dpo():
    pairs = refined.run_of(refined.PAIRS, 3e-5, 2)
    score_N = torch.tensor([0.3, 1.0])
    size = (score_N - score_N.mean()) / score_N.std()
    assert (pairs.update.beta * size).tolist() == pytest.approx([-5, 5])


def test_a_picture_is_judged_by_other_pictures_than_its_own():
    data_KD, label_K = digits()
    own_ND = data_KD[[15, 10]]  # an odd row and an even one, both kept out
    found = refined.judged(own_ND, own_ND)
    odd_KD = data_KD[1::2]
    near = [float(torch.cdist(own_ND[:1], odd_KD).sort(-1).values[0, 1]), float(torch.cdist(own_ND[1:], odd_KD).min())]
    assert found["nearness"] == pytest.approx(-sum(near) / 2, rel=1e-3) and found["psnr"] > 90
    swapped = refined.judged(own_ND.flip(0), own_ND)
    assert int(label_K[15]) != int(label_K[10]) and swapped["right"] == 0 and found["right"] == 1
