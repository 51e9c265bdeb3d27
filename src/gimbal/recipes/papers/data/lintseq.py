from __future__ import annotations

from dataclasses import replace

from gimbal.engines.native import Native
from gimbal.environments.edit_sequences import EditSequences
from gimbal.environments.string_programs import StringPrograms
from gimbal.ops import TokenMean
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.sft import sft
from gimbal.rewards.passes_tests import PassesTests
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.single import SingleTurn


def lintseq() -> Run:
    """LintSeq (arXiv:2410.02749): SFT, from nothing, on 2,000 short functions, each written as edits that a linter finds clean.

    Held-out functions are sampled as edits, and run. Yours: tasks.tasks=rows.jsonl (columns prompt and completion, a program).
    """
    run = sft()
    return replace(
        run,
        policy=CausalLM(model=MEMORY, fresh=True),
        tasks=EditSequences(tasks=StringPrograms(size=2_000)),
        held_out=HeldOut(
            tasks=StringPrograms(split="held_out", size=64),
            samples=8,
            engine=Native(slots=256),
            workflow=SingleTurn(),
            rewards=(PassesTests(edits=True),),
        ),
        sampling=Sampling(max_length=110),
        aggregation=TokenMean(),
        prompts_per_step=64,
        optimization=replace(run.optimization, learning_rate=5e-3, beta2=0.99, warmup_steps=20, decay="cosine"),
        steps=400,
    )
