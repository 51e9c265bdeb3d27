from __future__ import annotations

from dataclasses import replace

from gimbal.policies.rejuvenated import Rejuvenated
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run

PROBE = tuple(
    f"{a} + {b} - {c} =\n<think>{a}+{b}={a + b} {a + b}-{c}={a + b - c}</think><answer>{a + b - c}</answer>"
    for a, b, c in ((77, 90, 67), (12, 45, 30), (38, 61, 94), (50, 29, 13), (83, 16, 72), (24, 98, 55))
)


def rejuvenation() -> Run:
    """Rejuvenation (arXiv:2606.09932): restores the plasticity of an over-trained model, then runs GRPO; requires policy.model=.

    To get such a model: `gimbal train sft`, then `gimbal train rejuvenation policy.model=runs/NAME/model`.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), policy=Rejuvenated(probe=PROBE))
