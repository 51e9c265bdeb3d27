from __future__ import annotations

from dataclasses import replace

from gimbal.environments.cases import Families
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.case_memory import CaseMemory

ANSWER = ExactAnswer(opening="", closing="")


def agentfly() -> Run:
    """AgentFly (arXiv:2508.16153): attempts read past cases that a learned Q picks; gimbal-tiny-memory on families with a hidden rule.

    Here the policy trains too. Frozen, as published: `gimbal eval gimbal-tiny-memory --recipe agentfly`. An evaluation begins with an
    empty memory, one attempt at a time.
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        policy=CausalLM(model=MEMORY),
        workflow=CaseMemory(reward=ANSWER),
        tasks=Families(),
        held_out=HeldOut(tasks=Families(size=256), samples=1, workflow=CaseMemory(reward=ANSWER, at_once=1)),
        sampling=Sampling(max_length=4),
        rewards=(ANSWER,),
        prompts_per_step=8,
        steps=20,
    )
