"""Whether a run's rewards go together, and can score its tasks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gimbal.composition import Refusal, Verdict
from gimbal.policies.control import StepSampling
from gimbal.policies.paths import PathSampling
from gimbal.records import AbstractSampling, Task
from gimbal.rewards import beside
from gimbal.rewards.base import AbstractReward
from gimbal.rewards.function import Function
from gimbal.rewards.isolation import RewardError
from gimbal.rewards.scoring import ERROR
from gimbal.runtime.run import AbstractRun
from gimbal.workflows.runner import Driven

PLACES: dict[type[AbstractSampling], str] = {  # where f(rollout) finds what was made instead of a text
    PathSampling: "the picture is rollout.decisions.sample_ND[0], and the class that was asked for rollout.task.columns.get('label')",
    StepSampling: "what was seen and done is in rollout.decisions, and what the environment paid in rollout.reward_S",
}


def named_apart(rewards: Sequence[AbstractReward], where: str) -> Iterator[Verdict]:
    """Each reward has a name of its own: metrics, and parts that read one, find it by that."""
    for place, reward in enumerate(rewards):
        if reward.name in (ERROR, *(other.name for other in rewards[:place])):
            if isinstance(reward, Function) and isinstance(reward.function, str):
                way = f"Function(function={reward.function!r}, name='other', weight={reward.weight:g})"
            else:
                way = f"{type(reward).__name__}(name='other', ...)"
            why = f"a second reward of {where}" if reward.name != ERROR else "what counts failures, and a reward"
            yield Refusal(
                f"{reward.name!r} is the name of {why}, so metrics could not tell them apart: leave one out, or name it, as in {way}"
            )


def taken(reward: AbstractReward, task: Task, rewards: Sequence[AbstractReward]) -> None:
    """Refuse a task that a reward cannot score, and say how to give another without losing those by which the run works."""
    try:
        reward.accepts(task)
    except ValueError as error:
        if reward.is_method or not (kept := beside.methods(rewards)):
            raise
        way = beside.together(kept, rewards)
        raise type(error)(f"{error}. To keep {beside.names(kept)}, by which this run is scored: {way}") from error


def worded(reward: AbstractReward, sampler: Driven, sampling: AbstractSampling) -> None:
    """Refuse a function that scores texts where nothing is answered in words: it would be given "" for every picture or episode."""
    place = next((place for kind, place in PLACES.items() if isinstance(sampling, kind)), "")
    if place and not sampler.kinds and isinstance(reward, Function) and reward.reads_texts:
        raise RewardError(
            f"reward {reward.name} scores texts (its parameter is completions or solution_str), and this policy writes none: write it "
            f"as f(rollout) -> float; {place}"
        )


def alone(rewards: Sequence[AbstractReward], run: AbstractRun) -> Iterator[str]:
    """A reminder where a function of whole groups scores the evaluation, in which a group is one rollout."""
    held_out = run.held_out
    named = [reward.name for reward in rewards if isinstance(reward, Function) and reward.of_groups]
    if named and held_out is not None and held_out.samples == 1 < run.num_generations:
        yield (
            f"reward {named[0]} is given the whole group, and held_out.samples=1 makes groups of one in the evaluation, so that "
            "a score by comparison says nothing there: set "
            f"held_out.samples={min(run.num_generations, 4)}, or held_out.rewards=FILE.py:FUNCTION"
        )


def numbered(task: Task, rewards: Sequence[AbstractReward]) -> str:
    """A reminder where a function of the user's gets a number as the answer, which no text that it finds is equal to; else ""."""
    answer = task.columns.get("answer")
    if isinstance(answer, bool) or not isinstance(answer, int | float):
        return ""
    if not any(isinstance(reward, Function) for reward in rewards):
        return ""
    return (
        f"the answer of task {task.id} is the number {answer}, and a reward function receives it as a number, which equals no text: "
        "compare with str(answer), or write answers as text in the file"
    )
