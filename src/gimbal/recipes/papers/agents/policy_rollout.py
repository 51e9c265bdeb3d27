from __future__ import annotations

from dataclasses import replace

from gimbal.environments.rulebook import Rulebook
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.privileged_context import PrivilegedContext
from gimbal.workflows.single import SingleTurn


def policy_rollout() -> Run:
    """TriMPI's PolicyRollout (arXiv:2510.09474): half of a group reads a rule, all train as if none had, so that weights hold it.

    16 rules; starts from gimbal-tiny-memory. Left out: pretraining on the rules and SFT, the stages before, and images; an attempt
    reads the rule that it needs, not all. On-policy except for staleness and what the context changes: one update per batch, at a
    ratio of 1, so the clip never acts.
    """
    run = grpo()
    return replace(
        run,
        policy=CausalLM(model=MEMORY),
        workflow=PrivilegedContext(template="{context}{rest}"),
        tasks=Rulebook(),
        held_out=HeldOut(tasks=Rulebook(size=256), samples=1, workflow=SingleTurn()),
        sampling=Sampling(max_length=8),
        rewards=(ExactAnswer(opening="", closing=""),),
        steps=80,
        optimization=replace(run.optimization, learning_rate=2e-3),
    )
