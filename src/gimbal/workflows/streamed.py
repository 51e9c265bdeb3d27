"""Streams: an episode is drawn block after block, each after the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import STREAMS, Composition, Refusal, Verdict
from gimbal.dataflow.real_samples import RealSamples
from gimbal.environments.conditions import Conditions
from gimbal.ops import philox
from gimbal.policies.denoiser import LABEL, Denoiser
from gimbal.policies.paths import NO_LABEL, Paths
from gimbal.records import Episode, Rollout, Task
from gimbal.workflows.base import AbstractWorkflow, Attempt, Draw, Steps

Told = Literal["first", "all"]


@dataclass(frozen=True, kw_only=True)
class Streamed(AbstractWorkflow):
    """Draws ``blocks`` samples in a row, each by a policy that sees the one before (``policy.history``); each is a row of the episode.

    ``past`` None: block b follows the block b - 1 that was drawn, as when the policy is used, so training meets its own errors
    (self-forcing). A ``RealSamples``: every block but the first follows a real sample instead, of the class of the task (teacher
    forcing); whatever the policy then learns, it learns with a past that it will not have.
    ``told``: whether only the first block is told the class, so that the others have to carry it on, or all are.

    Rewards of samples judge every block; their mean is the score of the episode, and so of all of its rows.

    - the first block: that of SingleTurn, bit for bit.
    - a policy that does not look at the block before: independent samples of those that are told alike.

    Left out of what streaming generators do: a past of several blocks, and a cache of what the network computed of it.
    """

    blocks: int = 6
    past: RealSamples | None = None
    told: Told = "first"

    def __post_init__(self) -> None:
        check_blocks("Streamed", self.blocks, self.told)

    def effects(self) -> frozenset[str]:
        return super().effects() | {STREAMS}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        run = whole.run
        yield from streamable("Streamed", self.told, whole)
        if self.past is not None and run.held_out is not None and run.held_out.workflow is None:
            yield Refusal(
                "Streamed.past gives blocks a past that they do not have when the policy is used, so an evaluation with it would not "
                "measure that: held_out.workflow='Streamed()', or held_out=None"
            )

    def __call__(self, attempt: Attempt) -> Steps:
        task = later(attempt.task, self.told)
        rows = [(yield attempt.begin())]
        for block in range(1, self.blocks):
            before = self._before(attempt, rows[-1], block)
            row = yield Draw(task=task, sample=attempt.sample, sampling=attempt.sampling, after=before)
            rows.append(replace(row, task=attempt.task))
        return Episode(rows=tuple(rows))

    def _before(self, attempt: Attempt, row: Rollout, block: int) -> Float[Tensor, ...]:
        """What this block follows; ``row`` is the block that was drawn before it."""
        own_D = made(row)
        if self.past is None:
            return own_D
        generator = philox("past", attempt.seed, attempt.task.id, attempt.sample, block)
        label = torch.tensor([attempt.task.columns.get(LABEL, NO_LABEL)])
        return self.past.drawn(label, tuple(own_D.shape), generator)[0]


def check_blocks(workflow: str, blocks: int, told: Told) -> None:
    if blocks < 2:
        raise ValueError(f"{workflow}.blocks is {blocks}; a stream has at least 2, and one is SingleTurn()")
    if told not in get_args(Told):
        raise ValueError(f"{workflow}.told is {told}; choose among {' and '.join(get_args(Told))}")


def streamable(workflow: str, told: Told, whole: Composition) -> Iterator[Verdict]:
    """The refusals of a workflow that draws block after block, and tells the class so."""
    run = whole.run
    if not isinstance(run.policy, Denoiser) or not run.policy.sees_history:
        yield Refusal(
            f"{workflow} draws each block after the one before, which this policy does not see: "
            "policy='Denoiser(model=gimbal-digits-stream)', or policy.history=true"
        )
    elif told == "first" and run.policy.only_by_class:
        yield Refusal(
            f"{workflow} tells only the first block its class, and {run.policy.model} samples only with one: set workflow.told=all, "
            "and held_out.workflow.told=all"
        )
    if told == "all" and isinstance(run.tasks, Conditions) and not run.tasks.labels:
        yield Refusal(f"{workflow}.told=all tells every block the class of its task, which has none: set tasks.labels")


def later(task: Task, told: Told) -> Task:
    """What blocks after the first are asked for."""
    if told == "all":
        return task
    return replace(task, columns={name: value for name, value in task.columns.items() if name != LABEL})


def made(row: Rollout) -> Float[Tensor, ...]:
    """The finished block."""
    assert isinstance(row.decisions, Paths), type(row.decisions)
    return row.decisions.sample_ND[0]
