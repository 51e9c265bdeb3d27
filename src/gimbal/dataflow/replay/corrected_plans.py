"""Recorded plans, driven slower or faster where the environment pays more for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

from gimbal.composition import AbstractPart, Composition, Refusal, Verdict
from gimbal.environments.base import Moment
from gimbal.environments.gym import Environment
from gimbal.environments.minari import Minari
from gimbal.environments.recording import RecordedEpisode, Recording
from gimbal.records import Task

LIKE = 1e-3  # how far what a plan earns again may be from what was recorded, which is rounded


@dataclass(frozen=True, kw_only=True)
class CorrectedPlans(AbstractPart):
    """Puts better plans in place of recorded ones, as data for the policy that made them (after the on-policy generator optimisation
    of RAD-2, arXiv:2604.15308).

    The environment plays each episode again, from its seed. At step s, R_s(k) is what the rest of it earns with replanned(a_s, k), the
    plan at k times its speeds, and later plans as recorded. k is one of ``factors``, or 1. Then

        a_s <- replanned(a_s, k*),   k* = argmax_k R_s(k),   where R_s(k*) > R_s(1) + ``margin``; else a_s stays as it was,

    and a plan that stays is left out where the episode is terminated after it (a crash). Each step becomes an episode of one step, with
    what the environment then pays and shows. ``replanned(plan, factor)`` is the environment's: the same way, at other speeds, within
    what the car can do. Where the record of a termination is over and its correction goes on, the last plan is played again and again,
    for as many steps as the longest episode has, so that it does not help to put a crash off.

    - ``factors`` = (): filtered imitation of what was recorded.
    - ``margin`` = inf: the same.
    - an episode whose plans cannot be bettered, and which does not end in a termination: its own steps, as they were.

    Defaults, ours: four factors, no margin. It is for environments in which a termination is a failure. ``replay/corrected`` is the
    share of recorded steps with a better plan, ``replay/left_out`` the share that is left out.

    Confidence: abstract, which says that feedback becomes longitudinal signals for the generator; ours: the rest.
    """

    factors: tuple[float, ...] = (0.5, 0.75, 1.25, 1.5)
    margin: float = 0.0

    def __post_init__(self) -> None:
        if not all(0 <= factor < np.inf for factor in self.factors) or not self.margin >= 0:
            raise ValueError(
                f"CorrectedPlans has factors {self.factors}, of speeds, each 0 or above and finite, and margin {self.margin}, "
                "0 or above"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        for tasks in whole.all(Minari):
            if why := self.unfit(tasks.recording):
                yield Refusal(
                    f"store.corrections tries recorded plans again, and of {tasks.dataset} {why}: set store.corrections=none"
                )

    def unfit(self, recording: Recording) -> str:
        """Why these episodes cannot be tried again; "" if they can."""
        if seedless := [number for number, episode in enumerate(recording.episodes) if episode.seed is None]:
            return f"episode {seedless[0]} has no seed, which gimbal record writes, so its plans cannot be tried again"
        if recording.costs:
            return "the data tell costs, of which a corrected plan has none"
        if not recording.source:
            return "the data name no environment, so their plans cannot be tried again"
        with closing(Environment(recording.source)) as world:
            if not world.replans:
                return f"{recording.source} has no method replanned(plan, factor), which drives a plan at other speeds"
            if world.interface != recording.interface:
                return f"the data have {recording.interface}, and {recording.source} has {world.interface}"
            _begun(world, recording, 0)
            return _unlike(world.step(recording.episodes[0].action_SA[0]), recording, 0, 0)

    def __call__(self, recording: Recording) -> tuple[Recording, dict[str, float]]:
        found: list[RecordedEpisode] = []
        corrected, longest = 0, max(episode.length for episode in recording.episodes)
        with closing(Environment(recording.source)) as world:
            for number, episode in enumerate(recording.episodes):
                _begun(world, recording, number)
                for step, plan_A in enumerate(episode.action_SA):
                    better = self._better(world, episode, step, longest)
                    corrected += better is not None
                    moment = world.step(plan_A)
                    if why := _unlike(moment, recording, number, step):
                        raise ValueError(f"plans cannot be tried again, as {why}: set store.corrections=none")
                    if better is not None:
                        found.append(better)
                    elif not episode.terminated:
                        found.append(_step(episode.observation_SO[step], plan_A, moment))
        if not found:
            raise ValueError(
                f"all {len(recording.episodes)} episodes end in a termination that no correction avoids: record a better policy"
            )
        shares = {"corrected": corrected / recording.steps, "left_out": 1 - len(found) / recording.steps}
        return replace(recording, episodes=tuple(found)), shares

    def _better(self, world: Environment, episode: RecordedEpisode, step: int, longest: int) -> RecordedEpisode | None:
        """The step with the best of the corrected plans, None where none is better than the plan at its own speeds."""
        more = longest - episode.length if episode.terminated else 0
        later = [*episode.action_SA[step + 1 :], *[episode.action_SA[-1]] * more]
        most, best = -np.inf, None
        for factor in (1.0, *self.factors):  # what a plan pays for a push that leads nowhere is no matter of its speeds
            other = world.fork()
            plan_A = other.replanned(episode.action_SA[step], factor)
            first = moment = other.step(plan_A)
            total = moment.reward
            for later_A in later:
                if moment.terminated or moment.truncated:
                    break
                moment = other.step(later_A)
                total += moment.reward
            if factor == 1:
                most = max(most, total + self.margin)
            elif total > most:
                most, best = total, _step(episode.observation_SO[step], plan_A, first)
        return best


def _begun(world: Environment, recording: Recording, number: int) -> None:
    """The episode of this number from its beginning."""
    seed = recording.episodes[number].seed
    assert seed is not None, "a run is refused whose data have no seeds"
    world.reset(Task(id=str(number), source=recording.source, seed=seed), 0)


def _unlike(moment: Moment, recording: Recording, number: int, step: int) -> str:
    """How what a step pays again differs from what is recorded; "" if it does not."""
    recorded = float(recording.episodes[number].reward_S[step])
    if abs(moment.reward - recorded) <= LIKE:
        return ""
    return (
        f"{recording.source} pays {moment.reward:g} in step {step} of episode {number} and {recorded:g} is recorded (by another "
        "environment, or one in which more is drawn than its seed says)"
    )


def _step(seen_O: Float[np.ndarray, " O"], plan_A: Float[np.ndarray, " A"], moment: Moment) -> RecordedEpisode:
    return RecordedEpisode(
        observation_SO=np.stack([seen_O, moment.observation]),
        action_SA=plan_A[None].astype(np.float32),
        reward_S=np.array([moment.reward], np.float32),
        terminated=moment.terminated,
    )
