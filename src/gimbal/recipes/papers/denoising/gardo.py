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

    Reward: a linear classifier's logit for four, which is unbounded, so images that resemble no digit earn most. The exact KL acts on
    the samples that rank higher by reward than by nearness to coarse real fours; the reference follows the policy; good samples unlike
    the rest of their group gain more. ``pass_rate`` is the share of samples that are as near to a real four as real fours are, on data
    that neither has seen. Ours: pixel distances, where the paper uses features of a large model; a coefficient of 0.2, since at the
    published 0.04 the reward is hacked here (docs/log.md); paths of six steps. Not shown here: text-to-image models of billions of
    parameters, and their learned proxies. No guidance.
    """
    run = flow_grpo()
    return replace(
        run,
        prompts_per_step=4,
        sampling=replace(run.sampling, max_length=6),
        rewards=(
            DigitLikeness(wanted=WANTED, name="true", weight=0.0),
            DigitClass(wanted=WANTED, scale="logit", name="logit"),
            DigitLikeness(wanted=WANTED, rows="even", scale="nearness", blocks=2, name="coarse", weight=0.0),
            SampleNovelty(),
            DigitDistance(wanted=WANTED),
        ),
        advantage=GroupCentered(),
        shaping=(DiversityWeighted(),),
        regularisers=(GatedStepKL(coef=0.2, auxiliary=("coarse",)),),
        controllers={"regularisers.0.share": NewExtremes()},
        renewal=RenewedReference(),
    )
