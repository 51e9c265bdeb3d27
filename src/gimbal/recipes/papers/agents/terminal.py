from __future__ import annotations

from dataclasses import replace

from gimbal.environments.chore_kinds import FOLLOWED
from gimbal.environments.chores import Chores
from gimbal.environments.terminal import Terminal
from gimbal.policies.loading import AGENT
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.dialogue import Dialogue


def terminal() -> Run:
    """An agent in a terminal: gimbal-tiny-agent writes programs, a sandbox runs them, and the next program depends on their output.

    GRPO on questions about a file that another file names (docs/terminal.md). Programs run in Monty; workflow.tool.sandbox sets another
    sandbox. On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    kinds, run = tuple(FOLLOWED), grpo()
    return replace(
        run,
        policy=CausalLM(model=AGENT),
        workflow=Dialogue(tool=Terminal(most=24), answers=3, overlap=4),
        tasks=Chores(kinds=kinds),
        held_out=HeldOut(tasks=Chores(kinds=kinds, split="held_out"), samples=4),
        sampling=Sampling(max_length=160),
        rewards=(),
        prompts_per_step=8,
        optimization=replace(run.optimization, learning_rate=5e-5),
        steps=50,
    )
