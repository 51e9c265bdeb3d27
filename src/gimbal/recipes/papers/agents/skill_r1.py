from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.revision_normalized import RevisionNormalized
from gimbal.engines.native import Native
from gimbal.environments.cases import Families
from gimbal.objectives.regularisers.entropy_bonus import EntropyBonus
from gimbal.policies.loading import MEMORY
from gimbal.policies.token import CausalLM, Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.exact import ExactAnswer
from gimbal.runtime.run import HeldOut, Run
from gimbal.workflows.base import Role
from gimbal.workflows.skill_evolution import SkillEvolution


def skill_r1() -> Run:
    """Skill-R1 (arXiv:2605.09359): a policy writes a skill for a frozen solver, and revises it twice by what came of it.

    Each task hides a digit of three, which no other task tells. The skill names one, and the solver (gimbal-tiny-memory, from which the
    policy starts too) answers with it. So a first skill is a guess, and to revise is to keep what was right and to drop what was not.
    Left out: the KL to the reference; an entropy bonus keeps the guesses apart, or a group soon agrees on one and nothing is learned.
    On-policy except for staleness, as grpo.
    """
    run = grpo()
    return replace(
        run,
        policy=CausalLM(model=MEMORY),
        workflow=SkillEvolution(
            solver=Role(policy=CausalLM(model=MEMORY), engine=Native()),
            reward=ExactAnswer(opening="", closing=""),
            write="{history}{prompt}",
            past="{prompt}{skill}={score}\n",
            solve="{prompt}{skill}\n{prompt}",
            tries=1,
        ),
        tasks=Families(families=2, misleading=0.0, period=1, digits=3),
        held_out=HeldOut(tasks=Families(families=2, misleading=0.0, period=1, digits=3, seed=1, size=256), samples=1),
        sampling=Sampling(max_length=1),
        rewards=(),
        advantage=RevisionNormalized(),
        regularisers=(EntropyBonus(coef=0.05),),
        optimization=replace(run.optimization, learning_rate=5e-4),
        prompts_per_step=16,
        steps=60,
    )
