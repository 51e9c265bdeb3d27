from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.entropy_consistency import EntropyConsistency
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.demonstrations import training_tasks
from gimbal.environments.reworded import Reworded
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.expected import Expected
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def ic_grpo() -> Run:
    """Information-consistent GRPO (arXiv:2512.12858): rewards equal information in the answers to two wordings of a sum.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        tasks=Reworded(tasks=training_tasks()),
        curriculum=Epochs(shuffle=False),
        rewards=(ReasoningScore(), Expected(column="family", name="family", weight=0.0)),
        reward_shaping=(EntropyConsistency(information=0.0, stability=0.5, over="score/family"),),
    )
