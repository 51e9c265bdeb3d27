from __future__ import annotations

from dataclasses import replace

from gimbal.dataflow.curricula.allocated import Allocated
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import Run


def v0() -> Run:
    """V_0 (arXiv:2602.03584): GRPO whose rollouts go to the prompts that the policy's record expects to be mixed.

    On-policy but for staleness: one update a batch, at a ratio of 1, so the clip never acts.
    """
    return replace(grpo(), curriculum=Allocated(prompts=16, rollouts=8, name="reasoning"))
