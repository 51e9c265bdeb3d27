"""From rewards to the score of each rollout."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import SupportsFloat

from gimbal.config.own import fault, learnable, wrong
from gimbal.ops.activity import doing
from gimbal.records import Drop, Episode, Group, Task
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.isolation import RewardError

ERROR, UNSCORED = "error", "unscored"


class Broken(float):
    """The 0 of a text on which a scorer failed. A number like any other, but counted."""


class NoVerdict(float):
    """A score that could not be determined, and why: neither 0 nor "does not apply". Its rollout leaves the group."""

    reason: str

    def __new__(cls, reason: str) -> NoVerdict:
        value = super().__new__(cls, math.nan)
        value.reason = reason
        return value


def score(
    group: Group,
    rewards: Sequence[AbstractReward],
    lost: Counter[str] | None = None,
    weights: Sequence[float] | None = None,
) -> Group | Drop:
    """score = sum of weight * reward over the rewards that apply; ``scores`` holds each by name, before weighting.

    Without rewards the group is returned unchanged (its dense rewards count). A rollout to which none applies leaves the group, because
    0 would be wrong. So does one to which a reward gave no finite number (NoVerdict), because the other rewards would not be
    comparable. ``lost`` counts them by reason; if no rollout is left, the group becomes a Drop with the most common reason.
    ``scores["error"]`` is 1 where a scorer failed on the text, else 0. ``weights``: by default the rewards' own.
    """
    if not rewards:
        return group
    names = [reward.name for reward in rewards]
    if len(set(names)) < len(names) or ERROR in names:
        raise ValueError(f"rewards are named {names}; each needs a unique name other than {ERROR!r}")
    columns = []
    for reward in rewards:
        with doing(f"reward {reward.name}", task=group.task.id):
            columns.append(_given(reward, group))
    lost, scored = Counter() if lost is None else lost, []
    for episode, values in zip(group.episodes, zip(*columns, strict=True), strict=True):
        applying = {r: v for r, v in zip(range(len(rewards)), values, strict=True) if v is not None}
        failed = [v for v in applying.values() if learnable(v) is None]
        if applying and not failed:
            given = [reward.weight for reward in rewards] if weights is None else weights
            scored.append(_scored(episode, rewards, applying, given))
        else:
            lost[getattr(failed[0], "reason", "not_finite") if failed else UNSCORED] += 1
    return replace(group, episodes=tuple(scored)) if scored else Drop(lost.most_common(1)[0][0])


def measured(rewards: Sequence[AbstractReward]) -> list[AbstractReward]:
    """Those that an evaluation scores by: one that goes by the rest of the group finds any rollout alone right, so it is left out."""
    return [reward for reward in rewards if not reward.by_group]


def unmeasured(rewards: Sequence[AbstractReward]) -> str:
    """Why an evaluation by these rewards would measure nothing, and the way out; "" if it measures something."""
    if not rewards or measured(rewards):
        return ""
    names = " and ".join(type(reward).__name__ for reward in rewards)
    return (
        f"{names} scores a rollout by the others of its group, so an evaluation by it alone would measure nothing (a rollout always "
        "agrees with itself): give one that knows the answer, held_out.rewards=file.py:function, or held_out=none"
    )


def decided(rewards: Sequence[AbstractReward]) -> bool:
    """Whether tasks are solved or not, by the first reward."""
    return bool(rewards) and rewards[0].decides


def weighed(rewards: Sequence[AbstractReward]) -> bool:
    """Whether the score says anything: it is a return, or some reward has a weight."""
    return not rewards or any(reward.weight for reward in rewards)


def of_all(rewards: Sequence[AbstractReward], groups: Sequence[Group], kind: str = "") -> dict[str, float]:
    """The rewards' figures over all rollouts of these groups, each named KIND + the reward's name / the figure's."""
    rollouts = [rollout for group in groups for rollout in group.rollouts]
    found = ((reward.name, reward.figures(rollouts)) for reward in rewards if rollouts)
    return {f"{kind}{own}/{name}": value for own, told in found for name, value in told.items()}


def _given(reward: AbstractReward, group: Group) -> list[float | None]:
    """A reward's scores of a group. If a user's reward raises, the run ends as it does with a function: saved and resumable."""
    try:
        values = reward(group)
        count = len(group.episodes)
        fits = isinstance(values, list | tuple) and len(values) == count
        if not fits or not all(value is None or isinstance(value, SupportsFloat) for value in values):
            raise wrong(
                reward,
                "__call__",
                values,
                f"a list of {count} numbers, one for each rollout, None where it does not apply",
            )
        return list(values)
    except Exception as error:  # whatever a user's reward raises
        if told := fault(error):
            raise RewardError(f"reward {reward.name} on task {group.task.id}: {told}") from error
        raise


def follow_ups(group: Group, rewards: Sequence[AbstractReward]) -> list[Task]:
    """All follow-up questions of the rewards about the group, in the order of the rewards."""
    return [task for reward in rewards for task in reward.follow_ups(group)]


def answered(group: Group, texts: Sequence[str], rewards: Sequence[AbstractReward]) -> Group:
    """The group with the answers to its follow-ups, each with the reward that asked."""
    counts = [len(reward.follow_ups(group)) for reward in rewards]
    assert sum(counts) == len(texts), "a reward asks for other follow-ups than before"
    ends = list(accumulate(counts))
    replies = {reward.name: tuple(texts[e - n : e]) for reward, n, e in zip(rewards, counts, ends, strict=True) if n}
    return replace(group, replies=replies)


def _scored(
    episode: Episode, rewards: Sequence[AbstractReward], values: dict[int, float], weights: Sequence[float]
) -> Episode:
    scores = {rewards[r].name: float(v) for r, v in values.items()}
    scores[ERROR] = float(any(isinstance(v, Broken) for v in values.values()))
    return episode.scored(sum(weights[r] * float(v) for r, v in values.items()), scores)
