from __future__ import annotations

from dataclasses import replace

from gimbal.advantages.reward_shaping.ranked_rightly import RankedRightly
from gimbal.critics.tokens import HiddenValue
from gimbal.dataflow.curricula.epochs import Epochs
from gimbal.environments.proofreading import Proofreading
from gimbal.objectives.values.ranking_loss import RankingLoss
from gimbal.policies.token import Sampling
from gimbal.recipes.core.grpo import grpo
from gimbal.rewards.expected import Expected
from gimbal.rewards.pattern import Pattern
from gimbal.runtime.run import Run


def descore() -> Run:
    """DeScore (arXiv:2605.05922): a judge reasons in text and scores with a head; pairs train the head, the head rewards the text.

    Start from a judge: `gimbal train proofreading_start`, then `gimbal train descore policy.model=runs/NAME/model`. gimbal-tiny
    learns the format, but its head does not learn the order (docs/log.md).
    On-policy except for staleness: one update per batch, at a ratio of 1, so the clip never acts.
    """
    return replace(
        grpo(),
        tasks=Proofreading(),
        curriculum=Epochs(shuffle=False),  # a pair's two entries are adjacent
        held_out=None,
        sampling=Sampling(max_length=32),
        rewards=(
            Pattern(pattern=r"<think>.+</think><answer>.*</answer>", weight=0.1),
            Expected(column="pair", name="pair", weight=0.0),
            Expected(column="sound", name="sound", weight=0.0),
        ),
        reward_shaping=(RankedRightly(pair="pair", preference="sound"),),
        regularisers=(RankingLoss(pair="pair", preference="sound"),),
        critic=HiddenValue(hidden=(64,)),
    )
