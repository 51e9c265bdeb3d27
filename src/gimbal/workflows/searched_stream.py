"""Streams that are searched as they are drawn: several candidates for each block, of which a reward keeps the best."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, STREAMS, Composition, Refusal, Verdict
from gimbal.ops import philox
from gimbal.policies.paths import Paths
from gimbal.records import Episode, Group, Rollout
from gimbal.rewards.base import AbstractReward
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Steps
from gimbal.workflows.over_rows import evaluated_otherwise, goes_by
from gimbal.workflows.streamed import Told, check_blocks, later, made, streamable

Stream = tuple[Rollout, ...]


@dataclass(frozen=True, kw_only=True)
class SearchedStream(AbstractWorkflow):
    """Draws a stream of ``blocks`` by search: of several candidates for each block those stay that a reward prefers (Stream-T1,
    arXiv:2605.04461). Nothing is trained by it; it is for sampling, and so for evaluations (``held_out.workflow``).

    ``beam`` streams are kept. Each is continued by ``candidates`` blocks, every one after the stream's own last block, and the best
    ``beam`` of all stay, by ``reward`` of their last ``window`` blocks; in the end the best one is the episode. A candidate begins at
    the noise

        eps = sqrt(carried) eps_before + sqrt(1 - carried) eps_new

    of unit variance, eps_before that of the block it follows.

    - ``candidates`` 1, ``beam`` 1 and ``carried`` 0: Streamed, bit for bit.
    - ``carried`` 0: the best of so many blocks, each from noise of its own; 1: all blocks of a stream begin at one noise.
    - ``window`` = ``blocks`` or more: streams compete by all that they have.

    A sample reward judges each block alone, and the past of a stream is the same for all of its candidates: ``window`` then needs a
    ``beam`` above 1 to choose otherwise. An episode costs blocks x beam x candidates paths, of the first block as many; those that were
    not kept count as generated. Left out: a memory whose entries the reward routes, since the past here is one block; a score that adds
    one of the last block to one of a window. Ours: no noise is handed on by default, as it hurt (docs/streams.md).

    Log-probabilities: blocks are the policy's, but chosen by their reward, so the kept are no sample of it. Updates of the forward
    process read no ratios.

    Confidence: abstract only; the equations are ours.
    """

    blocks: int = 6
    candidates: int = 4
    beam: int = 1
    window: int = 1
    carried: float = 0.0
    told: Told = "first"
    reward: AbstractReward

    def __post_init__(self) -> None:
        check_blocks("SearchedStream", self.blocks, self.told)
        if self.candidates < 1 or self.beam < 1 or self.window < 1:
            raise ValueError(
                f"SearchedStream has candidates {self.candidates}, beam {self.beam} and window {self.window}; each is 1 or more"
            )
        if not 0 <= self.carried <= 1:
            raise ValueError(
                f"SearchedStream.carried is {self.carried}; it is a share of the noise's variance, from 0 to 1"
            )
        if self.carried == 1 and self.candidates > 1:
            raise ValueError(
                f"SearchedStream.carried is 1, so that the {self.candidates} candidates of a block are one and the same: set carried "
                "below 1, or candidates=1"
            )

    def effects(self) -> frozenset[str]:
        return super().effects() | {STREAMS}

    def accepts(self, task: Any) -> None:
        self.reward.accepts(task)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from evaluated_otherwise("SearchedStream chooses blocks by their reward", whole)
        yield from goes_by(self.reward, "SearchedStream", whole)
        yield from streamable("SearchedStream", self.told, whole)
        held_out = whole.run.held_out
        evaluates = held_out is not None and isinstance(held_out.workflow, SearchedStream)
        if len(whole.all(SearchedStream)) > evaluates and not whole.doing(FORWARD):
            yield Refusal(
                "SearchedStream chooses blocks, and a policy gradient would count them as drawn: set workflow='Streamed()' and "
                "held_out.workflow='SearchedStream(...)', or an update of finished samples, such as update=DiffusionNFT()"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        first = yield attempt.begin()
        # All first rows of a sample begin at one noise, unless they are told another.
        rows = [first]
        rows += yield [
            Draw(
                task=attempt.task,
                sample=attempt.sample,
                sampling=attempt.sampling,
                start=_noise(attempt, 0, number, begun(first)),
            )
            for number in range(1, self.beam * self.candidates)
        ]
        streams, spent = self._best(attempt, [(row,) for row in rows]), sum(row.drawn for row in rows)
        for block in range(1, self.blocks):
            parents = [stream for stream in streams for _ in range(self.candidates)]
            rows = yield [self._next(attempt, stream, block, number) for number, stream in enumerate(parents)]
            asked = [replace(row, task=attempt.task) for row in rows]
            streams = self._best(attempt, [(*stream, row) for stream, row in zip(parents, asked, strict=True)])
            spent += sum(row.drawn for row in rows)
        return Episode(rows=streams[0], spent=spent - sum(row.drawn for row in streams[0]))

    def _next(self, attempt: Attempt, stream: Stream, block: int, number: int) -> Draw:
        before, start_D = stream[-1], None
        if self.carried:
            start_D = self.carried**0.5 * begun(before)
            start_D = start_D + (1 - self.carried) ** 0.5 * _noise(attempt, block, number, start_D)
        return Draw(
            task=later(attempt.task, self.told),
            sample=attempt.sample,
            sampling=attempt.sampling,
            after=made(before),
            start=start_D,
        )

    def _best(self, attempt: Attempt, streams: Sequence[Stream]) -> list[Stream]:
        """The best first; among equals the earlier one, and what has no reward last."""
        if len(streams) == 1:
            return list(streams)
        judged = [Episode(rows=stream[-self.window :]) for stream in streams]
        values = self.reward(Group(index=attempt.group, task=attempt.task, episodes=tuple(judged)))
        known = [-math.inf if value is None or math.isnan(value) else value for value in values]
        ranked = sorted(range(len(streams)), key=lambda number: -known[number])
        return [streams[number] for number in ranked[: self.beam]]


def begun(row: Rollout) -> Float[Tensor, ...]:
    """The noise that its path began with."""
    assert isinstance(row.decisions, Paths), type(row.decisions)
    return row.decisions.state_NXD[0, 0]


def _noise(attempt: Attempt, block: int, number: int, like_D: Float[Tensor, ...]) -> Float[Tensor, ...]:
    generator = philox("candidate", attempt.seed, attempt.task.id, attempt.sample, block, number)
    return torch.from_numpy(generator.standard_normal(tuple(like_D.shape), dtype=np.float32))
