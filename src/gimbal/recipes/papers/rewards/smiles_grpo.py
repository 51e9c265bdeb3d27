from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.added_reward import AddedReward
from gimbal.controllers.linear import Linear
from gimbal.environments.demonstrations import held_out_tasks, training_tasks
from gimbal.objectives.regularisers.kl_penalty import KLPenalty
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.pattern import Pattern
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.rewards.similarity import Similarity
from gimbal.runtime.run import HeldOut, Run


def smiles_grpo() -> Run:
    """SMILES-GRPO (arXiv:2601.17687): spelling words backwards, rewarded by similarity, with a format reward that fades over 30 steps.

    Two updates per batch.
    """
    run = grpo()
    return replace(
        run,
        tasks=training_tasks("spell_backward"),
        held_out=HeldOut(tasks=held_out_tasks("spell_backward", size=256), samples=4),
        rewards=(ReasoningScore(weight=0.0), Similarity(), Pattern(weight=0.0)),
        reward_shaping=(AddedReward(name="format", weight=0.5), AddedReward(name="similarity", weight=-0.5)),
        controllers={
            "reward_shaping.0.weight": Linear(initial=0.5, final=0.0),
            "reward_shaping.1.weight": Linear(initial=-0.5, final=0.0),
        },
        regularisers=(KLPenalty(coef=0.001),),
        optimization=replace(run.optimization, minibatches=2),
    )
