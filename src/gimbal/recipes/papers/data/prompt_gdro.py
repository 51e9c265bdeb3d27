from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.shapings.emphasised import COLUMN, Emphasised
from gimbal.dataflow.curricula.adversarial import Adversarial
from gimbal.recipes.core.grpo import grpo
from gimbal.recipes.papers.data.vade import AGAIN
from gimbal.rewards.expected import Expected
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def prompt_gdro() -> Run:
    """Prompt-GDRO (arXiv:2601.19280): an adversary weights each difficulty bin's gradient by how often the policy fails there.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        **AGAIN,
        curriculum=Adversarial(),
        rewards=(ReasoningScore(), Expected(column=COLUMN, name=COLUMN, weight=0.0)),
        shaping=(Emphasised(),),
    )
