from __future__ import annotations

from dataclasses import replace

from gimbal.environments.lookups import ALONE, PLANS, Lookups, Pages
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.delegation import Delegation
from gimbal.workflows.dialogue import Dialogue

EXECUTORS = Dialogue(tool=Pages(), answers=2, overlap=1)


def coda_peco() -> Run:
    """CoDA (arXiv:2512.12716): a planner delegates look-ups to executors with contexts of their own, all one model with one reward.

    Questions of two look-ups among distractors; only values come back to the planner. Start from the model of `coda_start`:
    policy.model=runs/NAME/model. One agent that looks up everything in one context: workflow="Dialogue(tool=Pages(),answers=4)"
    tasks.mark=: with the same for held_out. An episode counts once in the loss, however often it delegates. Left out: rewards for
    formats, and a KL of .001. On-policy except for staleness, as grpo.
    """
    run = grpo()
    return replace(
        run,
        workflow=Delegation(
            inside=EXECUTORS, template="{task}" + ALONE, delegate=r"(\w)>$", told="{result};", delegations=3
        ),
        tasks=Lookups(mark=PLANS),
        held_out=HeldOut(tasks=Lookups(mark=PLANS, seed=1, size=256), samples=1),
        sampling=Sampling(max_length=128),
        rewards=(ExactAnswer(opening=";", closing=""),),
        prompts_per_step=8,
        steps=30,
    )
