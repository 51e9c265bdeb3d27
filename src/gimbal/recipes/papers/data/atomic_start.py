from __future__ import annotations

from dataclasses import replace

from gimbal.engines.native import Native
from gimbal.environments.hops import Hops
from gimbal.ops import TokenMean
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.sft import sft
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.single import SingleTurn

COMPOSED = HeldOut(
    tasks=Hops(kinds=("across",), split="held_out", seed=1, size=256),
    samples=4,
    engine=Native(slots=128),
    workflow=SingleTurn(),
    rewards=(ExactAnswer(opening="", closing=""),),
)


def atomic_start() -> Run:
    """Atomic-to-Composite, stage 1 (arXiv:2512.01970): SFT, from nothing, on pairs of relations within each of two families.

    Continue with stage 2 on pairs across: `gimbal train atomic_to_composite policy.model=runs/NAME/model`.
    """
    run = sft()
    return replace(
        run,
        policy=CausalLM(model=MEMORY, fresh=True),
        tasks=Hops(kinds=("within",)),
        held_out=COMPOSED,
        sampling=Sampling(max_length=4),
        aggregation=TokenMean(),
        prompts_per_step=64,
        optimization=replace(run.optimization, learning_rate=5e-3, beta2=0.99, warmup_steps=20, decay="cosine"),
        steps=300,
    )
