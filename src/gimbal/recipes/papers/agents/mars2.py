from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.tree_shaped import TreeShaped
from gimbal.environments.cases import Families
from gimbal.learning.separate import SeparateWeights
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import Run
from gimbal.workflows.shared_tree import SharedTree


def mars2() -> Run:
    """MARS2 (arXiv:2604.14564): two models grow one tree of eight attempts a task, and each learns from its own nodes.

    Each task hides a digit of three, which no other task tells; who refines an answer sees it with its score. Both models begin as
    gimbal-tiny-memory. Without held-out tasks, since a tree draws no samples of one policy: reward/mean is the share of right nodes.
    On-policy except for staleness: one update per batch, where the published clip of sequence ratios does not act. Left out: the KL.
    """
    run = grpo()
    return replace(
        run,
        policy=CausalLM(model=MEMORY),
        workflow=SharedTree(reward=ExactAnswer(opening="", closing=""), refine="{prompt}{answer}={score}\n{prompt}"),
        tasks=Families(families=2, misleading=0.0, period=1, digits=3),
        held_out=None,
        sampling=Sampling(max_length=1),
        rewards=(),
        advantage=TreeShaped(),
        regularisers=(EntropyBonus(coef=0.2),),
        optimization=replace(run.optimization, learning_rate=5e-4),
        prompts_per_step=32,
        steps=60,
        separate={"second": SeparateWeights()},
    )
