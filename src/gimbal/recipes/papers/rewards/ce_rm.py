from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.stratified import Stratified
from gimbal.environments.choices import Choices
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.criteria_judge import CriteriaJudge
from gimbal.runtime.run import Run
from gimbal.workflows.criteria_first import CriteriaFirst


def ce_rm() -> Run:
    """CE-RM (arXiv:2601.20327): a judge writes criteria from the question only, then scores two responses; both are trained."""
    run = grpo()
    return replace(
        run,
        workflow=CriteriaFirst(criteria=4),
        tasks=Choices(),
        held_out=None,
        rewards=(CriteriaJudge(), CriteriaJudge(measure="condition", weight=0.0)),
        advantage=Stratified(strata="score/condition", alpha=1.0),
        regularisers=(KLPenalty(coef=0.001),),
        prompts_per_step=4,
        num_generations=20,
        optimization=replace(run.optimization, minibatches=4),
    )
