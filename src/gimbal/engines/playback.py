"""Recorded episodes, played back: nothing acts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.engines.base import AbstractEngineSpec, AbstractEngineWithoutWeights, Finished, Request
from gimbal.environments.dataset import Dataset
from gimbal.environments.minari import DATASET, EPISODE, Minari, recording
from gimbal.environments.recording import DATA
from gimbal.policies.base import AbstractPolicy
from gimbal.policies.control import Steps
from gimbal.records import Rollout


@dataclass(frozen=True, kw_only=True)
class Playback(AbstractEngineSpec):
    """Answers each task of ``Minari`` with its recorded episode, so the report shows what the data look like. It holds no weights.
    The probability of a recorded action is unknown: ``behavior`` is 0, as for demonstrations.
    """

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Minari):
            tasks = whole.run.tasks
            found = f"{tasks.path} holds no {DATA}" if isinstance(tasks, Dataset) else "the tasks are none"
            yield Refusal(
                f"Playback plays recorded episodes, and {found}: tasks=DIRECTORY of a data set in Minari's layout (gimbal record RUN "
                "DIRECTORY writes one), or engine='Episodes()', which acts"
            )

    def start(self, policy: AbstractPolicy) -> PlaybackEngine:
        return PlaybackEngine()


class PlaybackEngine(AbstractEngineWithoutWeights):
    """Every request is answered at the next step."""

    def __init__(self) -> None:
        super().__init__()
        self._asked: list[Request] = []

    @property
    def in_flight(self) -> int:
        return len(self._asked)

    def submit(self, request: Request) -> None:
        self._asked.append(request)

    def step(self) -> list[Finished]:
        asked, self._asked = self._asked, []
        return [Finished.of(request.key, played(request, self.version)) for request in asked]

    def cancel(self, key: tuple[int, int]) -> Rollout | None:
        request = next((request for request in self._asked if request.key == key), None)
        if request is None:
            raise KeyError(f"no request {key} is in flight")
        self._asked.remove(request)
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"asked": list(self._asked)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._asked = list(state["asked"])


def played(request: Request, version: int) -> Rollout:
    """The episode of a task as a row: no more of it than ``sampling.max_length`` steps."""
    columns = request.task.columns
    episode = recording(columns[DATASET]).episodes[columns[EPISODE]]
    steps = min(episode.length, request.sampling.max_length)
    ended = episode.terminated and steps == episode.length
    observation_SO = torch.from_numpy(episode.observation_SO)
    return Rollout(
        task=request.task,
        sample=request.sample,
        row=request.row,
        decisions=Steps(
            observation_NSO=observation_SO[None, :steps],
            action_NSA=torch.from_numpy(episode.action_SA)[None, :steps],
            final_NO=observation_SO[None, steps],
            length_N=torch.tensor([steps]),
            terminated_N=torch.tensor([ended]),
        ),
        behavior_S=torch.zeros(steps),
        version_S=torch.full((steps,), version),
        mask_S=torch.ones(steps, dtype=torch.bool),
        reward_S=torch.from_numpy(episode.reward_S)[:steps],
        stop="terminated" if ended else "truncated",
        sampling=request.sampling,
    )
