"""PaCo-GRPO's resolution decoupling on gimbal-scales."""

from __future__ import annotations

from dataclasses import replace

from gimbal.policies.commits import MaskedSampling
from gimbal.recipes.papers.denoising.next_scale import next_scale
from gimbal.rewards.digits import DigitClass, DigitDistance, DigitLikeness
from gimbal.runtime.run import Run


def paco_resolution() -> Run:
    """PaCo-GRPO's resolution decoupling (arXiv:2512.04784): RL on pictures of few pixels, evaluation at all of them.

    Here the coarser two of three scales are drawn: 20 decisions in place of 84. ``held_out.sampling`` draws all three. The reward is
    the nearness to real digits of the class in 4 x 4 pixels, which reads both sizes alike; a reward made for one size is hacked at the
    other. The finest scale learns only through weights that it shares. Log-taming of rewards is `paco_grpo`'s. On-policy: the ratio is
    1, so the clip never acts. Not shown here: text-to-image models of billions of parameters, and a vision-language model as judge.
    """
    run, held_out = next_scale(), next_scale().held_out
    assert held_out is not None
    return replace(
        run,
        rewards=(
            DigitClass(by="neighbours", scale="hit", name="seen", weight=0.0),
            DigitLikeness(rows="even", scale="nearness", blocks=2, name="near"),
            DigitDistance(),
        ),
        sampling=MaskedSampling(max_length=20, threshold=0.0, blocks=(4, 16)),
        held_out=replace(held_out, sampling=run.sampling),
    )
