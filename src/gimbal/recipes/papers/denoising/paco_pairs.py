"""PaCo-RL's reward of pairs on streams of digits."""

from __future__ import annotations

from dataclasses import replace

from gimbal.recipes.papers.denoising.streams import streams
from gimbal.rewards.consistency import DigitConsistency
from gimbal.rewards.digits import DigitClass, DigitDistance
from gimbal.runtime.run import UpdateRun


def paco_pairs() -> UpdateRun:
    """PaCo-RL's reward (arXiv:2512.04784): pictures that belong together, by a judge of pairs that is not told what they should be.

    The set of pictures is a stream, whose first block alone is told its class. The judge says how likely two blocks are the same digit;
    `seen` measures the class that was asked for, by another judge, and is not trained on. Log-taming of several rewards is
    `paco_grpo`'s, learning on small pictures `paco_resolution`'s. Not shown here: text-to-image models that draw a set at once, and a
    vision-language model as judge. No guidance.
    """
    seen = DigitClass(by="neighbours", scale="hit", name="seen", weight=0.0)
    return replace(streams(), rewards=(seen, DigitConsistency(), DigitDistance()))
