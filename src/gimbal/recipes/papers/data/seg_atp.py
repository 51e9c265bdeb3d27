from __future__ import annotations

from dataclasses import replace

from gimbal.engines.native import Native
from gimbal.environments.natural_deduction import GOAL, Theorems
from gimbal.environments.segments import Segments
from gimbal.ops import TokenMean
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.sft import sft
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.proof_search import ProofSearch


def seg_atp() -> Run:
    """SEG-ATP (arXiv:2605.11905): SFT, from nothing, on proofs of 2,000 theorems in segments; held-out ones by best-first search.

    Theorems are of propositional logic. Yours: tasks.tasks=rows.jsonl (columns prompt, states and tactics) tasks.goal=⊢.
    """
    run = sft()
    return replace(
        run,
        policy=CausalLM(model=MEMORY, fresh=True),
        tasks=Segments(tasks=Theorems(size=2_000), goal=GOAL),
        held_out=HeldOut(
            tasks=Theorems(split="held_out", size=64),
            samples=1,
            engine=Native(slots=256),
            workflow=ProofSearch(),
            rewards=(),
        ),
        sampling=Sampling(max_length=48),
        aggregation=TokenMean(),
        prompts_per_step=64,
        optimization=replace(run.optimization, learning_rate=5e-3, beta2=0.99, warmup_steps=20, decay="cosine"),
        steps=400,
    )
