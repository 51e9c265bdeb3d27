"""OneReward on gimbal-digits-shown."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.shown_pictures import ShownPictures
from gimbal.learning.updates.gradient_steps import GradientSteps
from gimbal.learning.updates.reward_gradient import RewardGradient
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.paths import PathSampling
from gimbal.recipes.papers.denoising.draft import draft
from gimbal.rewards.shown_digits import DigitJudge, UsablePicture
from gimbal.runtime.run import HeldOut, UpdateRun


def one_reward() -> UpdateRun:
    """OneReward (arXiv:2508.21066): a model fills, extends and removes, and climbs one judge's verdicts against its former self.

    Tasks: 50 % fill a hole, 25 % extend a half, 25 % remove an object. The reward is that of the clean sample predicted at one of
    the last three of six steps, as in `refl`. ``usable`` measures by programs; evaluations are on digits that the model has never
    seen. On-policy. Published: a large judge, which is asked in words, and an average of the weights. Ours: a pull to the base.
    """
    run, kinds = draft(), ("fill", "extend", "remove")
    return replace(
        run,
        policy=Denoiser(model="gimbal-digits-shown"),
        tasks=ShownPictures(seed=1),
        held_out=HeldOut(tasks=ShownPictures(kinds=kinds, kept_out=True, seed=2, size=198), samples=1),
        sampling=PathSampling(max_length=6, sampler="ode", spacing="trailing"),
        rewards=(UsablePicture(weight=0.0), DigitJudge(limit=0.9)),
        prompts_per_step=16,
        num_generations=2,
        steps=24,
        update=RewardGradient(
            steps=GradientSteps(count=1, late=3),
            coef=0.1,
            optimization=replace(run.update.optimization, learning_rate=1e-3),
        ),
    )
