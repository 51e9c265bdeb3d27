from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.estimators.gae import ReturnToGo
from gimbal.advantages.shapings.entropy_shaped import EntropyShaped
from gimbal.advantages.shapings.whitened import Whitened
from gimbal.dataflow.curricula.tracked import Tracked
from gimbal.environments.demonstrations import training_tasks
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.expected import Expected
from gimbal.rewards.reasoning import ReasoningScore
from gimbal.runtime.run import Run


def mssr() -> Run:
    """MSSR (arXiv:2512.18215): one rollout per task, relative to the task's history and whitened; a bonus for uncertain decisions.

    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        tasks=training_tasks(size=256),
        curriculum=Tracked(),
        rewards=(ReasoningScore(), Expected()),
        prompts_per_step=128,
        num_generations=1,
        advantage=ReturnToGo(),
        shaping=(Whitened(), EntropyShaped()),
    )
