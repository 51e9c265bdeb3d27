"""What begins at a spoilt sample does not train."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from gimbal.dataflow.base import AbstractFilter
from gimbal.policies.paths import NO_LABEL
from gimbal.records import Drop, Episode, Group, Rollout
from gimbal.rewards.digits import DigitClass
from gimbal.rewards.samples import AbstractSampleReward, finished


@dataclass(frozen=True, kw_only=True)
class Unspoilt(AbstractFilter):
    """Samples that follow one that failed do not train (the filter of Edit-R2, arXiv:2606.05950), in episodes of one sample after
    another (workflow=Streamed()).

        row n trains if judge(row m) > least for every m < n

    What a policy makes of a spoilt sample says little of what it would make of a sound one. Scores and advantages stay as they are, and
    so do the rows, as what later ones follow; ``drops/decisions/Unspoilt`` counts what is masked.

    - one sample an episode, or no failure: the group unchanged.
    - ``least`` = inf: only the first sample of each episode trains.

    Published: an instruction that a judge says was not followed spoils all later turns; the text of those turns trains on. Here there
    is no text, and the judge is any reward of samples.

    Confidence: verified (the authors' code); ours: the judge.
    """

    judge: AbstractSampleReward = field(default_factory=lambda: DigitClass(scale="probability"))
    least: float = 0.5

    def __call__(self, group: Group) -> Group | Drop:
        return replace(group, episodes=tuple(self._episode(episode) for episode in group.episodes))

    def _episode(self, episode: Episode) -> Episode:
        label_N = torch.full((len(episode.rows),), int(episode.task.columns.get("label", NO_LABEL)))
        with torch.no_grad():
            passed = (self.judge.of_samples(finished(episode.rows), label_N) > self.least).tolist()
        kept = [all(passed[:place]) for place in range(len(passed))]
        return replace(episode, rows=tuple(map(_masked, episode.rows, kept)))


def _masked(row: Rollout, kept: bool) -> Rollout:
    return row if kept else replace(row, mask_S=torch.zeros_like(row.mask_S))
