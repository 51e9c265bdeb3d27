from __future__ import annotations

from dataclasses import replace

from gimbal.advantages import Distillation
from gimbal.objectives import TruncatedWeight
from gimbal.ops import TokenMean
from gimbal.policies.loading import TEACHER
from gimbal.policies.token import CausalLM
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def opd() -> Run:
    """On-policy distillation (arXiv:2306.13649; Thinking Machines, 2025): the policy samples, a teacher grades each token; no reward.

    The teacher is `reference=`, by default `gimbal-tiny-teacher`: gimbal-tiny after the demo. Yours: `policy.model=STUDENT
    reference=TEACHER`, two models with the same tokenizer. `rewards` are measured, and train nothing.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        reference=CausalLM(model=TEACHER),
        prompts_per_step=32,
        num_generations=4,
        advantage=Distillation(),
        correction=TruncatedWeight(),
        aggregation=TokenMean(),
    )
