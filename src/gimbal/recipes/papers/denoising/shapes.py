"""Shapes of 16x16 pixels, as they were asked for."""

from __future__ import annotations

from dataclasses import replace

from gimbal.environments.conditions import Conditions
from gimbal.policies.denoiser import Denoiser
from gimbal.policies.diffusers import SHAPES
from gimbal.recipes.papers.denoising.diffusion_nft import diffusion_nft
from gimbal.rewards.shapes import COUNT, ShapeAttributes, ShapeDistance
from gimbal.runtime.run import HeldOut, UpdateRun


def shapes() -> UpdateRun:
    """A diffusion model learns to draw the shape, colour and size that it was asked for, by a program that reads them.

    The question is GenEval's (arXiv:2310.11513: is everything there that was asked for?), on pictures of 16x16 pixels that a program
    reads without a detector; `diffusion_nft` learns from the share of attributes that are right, and ``pass_rate`` is the share of
    pictures with all three. What is asked for is one of 18 classes. Not shown here: captions in words, several objects. No guidance.
    """
    run, labels = diffusion_nft(), tuple(range(COUNT))
    return replace(
        run,
        policy=Denoiser(model=SHAPES),
        tasks=Conditions(labels=labels, seed=1),
        held_out=HeldOut(tasks=Conditions(labels=labels, seed=2, size=180), samples=1),
        rewards=(
            ShapeAttributes(scale="all", name="all", weight=0.0),
            ShapeAttributes(),
            ShapeDistance(weight=-0.1),
        ),
        prompts_per_step=18,
        num_generations=8,
    )
