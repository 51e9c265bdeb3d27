from __future__ import annotations

from dataclasses import replace

from gimbal.environments.recall import Streams
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.edited_context import EditedContext

WINDOW = 31


def mem_act() -> Run:
    """MemAct (arXiv:2510.12635): the policy drops parts of its context and writes what it keeps; an edit ends a row.

    Streams of four lines of facts; a window of 31 tokens holds two. Starts from gimbal-tiny-memory. Left out: rows drawn for a step
    (all train) and the KL. On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    run = grpo()
    return replace(
        run,
        policy=CausalLM(model=MEMORY),
        workflow=EditedContext(window=WINDOW, turn=8, edit=r"^-()", overlap=1),
        tasks=Streams(),
        held_out=HeldOut(tasks=Streams(seed=1, size=256), samples=1),
        sampling=Sampling(max_length=WINDOW),
        rewards=(),
        prompts_per_step=8,
        steps=40,
    )
