"""GARDO on gimbal-digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import DiversityWeighted, GroupCentered
from gimbal.controllers import NewExtremes
from gimbal.learning.renewal import RenewedReference
from gimbal.objectives.regularisers.gated_step_kl import GatedStepKL
from gimbal.recipes.papers.denoising.flow_grpo import WANTED, flow_grpo
from gimbal.rewards.digits import DigitClass, DigitDistance, DigitLikeness
from gimbal.rewards.novelty import SampleNovelty
from gimbal.runtime.run import Run


def gardo() -> Run:
    """GARDO (arXiv:2512.24138): `flow_grpo` on a reward that can be hacked, held to a reference where the reward is doubtful.

    Reward: the logit of four of a linear classifier, which has no bound, so that images like no digit earn most. The exact KL acts on
    the samples whose reward beats more others than their nearness to coarse real fours does; the reference follows the policy;
    good samples unlike the others of their group gain more. ``pass_rate`` is the share of samples that are as near to a real four as
    real fours are, by data that neither has seen. Ours: distances of pixels where the paper has features of a large model.
    """
    return replace(
        flow_grpo(),
        rewards=(
            DigitLikeness(wanted=WANTED, name="true", weight=0.0),
            DigitClass(wanted=WANTED, scale="logit", name="logit"),
            DigitLikeness(wanted=WANTED, rows="even", scale="nearness", blocks=2, name="coarse", weight=0.0),
            SampleNovelty(),
            DigitDistance(wanted=WANTED),
        ),
        advantage=GroupCentered(),
        shaping=(DiversityWeighted(),),
        regularisers=(GatedStepKL(coef=0.04, auxiliary=("coarse",)),),
        controllers={"regularisers.0.share": NewExtremes()},
        renewal=RenewedReference(),
    )
