"""Recorded episodes as rows of single decisions, and whether a run can learn from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from gimbal.advantages.reward_shaping.priced_cost import COST_AFTER
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.minari import Minari
from gimbal.environments.recording import METADATA, Recording
from gimbal.policies.control import STEPS, Steps
from gimbal.records import TrainBatch

COST_HERE = "cost/here"  # fact [N, 1]: of the observation before an action; COST_AFTER is of the one after it
ROUNDING = 1e-4  # of its largest bound, by which a recorded action may pass it


def unlike(tasks: Minari, whole: Composition) -> Iterator[Verdict]:
    """What was recorded, what the policy sees and does, and what the evaluation plays are the same."""
    data, policy = tasks.recording, whole.run.policy
    if policy.family.unit != STEPS.unit:
        yield Refusal(
            f"{tasks.dataset} holds episodes of control, and {type(policy).__name__} does not act: begin with iql, cql, td3_bc or bc"
        )
        return
    world_of = cache(Environment)
    acted = whole.run.tasks.source if isinstance(whole.run.tasks, Gymnasium) else ""
    if acted and data.source and _named(acted) != _named(data.source):
        yield Refusal(
            f"{tasks.dataset} was recorded in {data.source}, and this run acts in {acted}, of which it says nothing: "
            f"store.prior=none acts without recorded episodes, store.prior.dataset=DIRECTORY takes those of {acted}, and "
            f"tasks.environment={data.source} acts where these come from; if both are the same, "
            f"write {acted} as the id of env_spec in its {METADATA}"
        )
        return
    if data.source and (there := world_of(data.source).interface) != data.interface:
        yield Refusal(
            f"{tasks.dataset} has {data.interface}, and {data.source}, which it names as its environment, {there}: the recording is "
            f"wrong; write arrays and spaces as the environment has them, or its right name as the id of env_spec in {METADATA}"
        )
        return
    if acted and (there := world_of(acted).interface) != data.interface:
        yield Refusal(
            f"{tasks.dataset} has {data.interface}, and {acted}, which this run acts in, {there}: store.prior=none acts "
            "without recorded episodes, store.prior.dataset=DIRECTORY takes others, and tasks.environment=NAME acts in the environment "
            f"that these come from, which its {METADATA} does not say"
        )
        return
    if (own := policy.load().interface) != data.interface:
        yield Refusal(
            f"{tasks.dataset} has {data.interface}, and the policy {own}: set policy.observations and policy.actions (Gaussian, "
            "SquashedGaussian or Deterministic for real actions, Categorical for choices)"
        )
    for played in whole.all(Gymnasium):
        if (there := world_of(played.source).interface) != data.interface:
            yield Refusal(
                f"{tasks.dataset} has {data.interface}, and {played.source}, which the evaluation plays, {there}: "
                f"held_out.tasks.environment={data.source or 'NAME'}, or held_out=none"
            )
    source = data.source or acted
    if source and world_of(source).real:
        yield from _beyond(tasks, world_of(source))


def _named(source: str) -> str:
    """The same however the path of a file is written."""
    place, _, name = source.rpartition(":")
    return f"{Path(place).expanduser().resolve()}:{name}" if place.endswith(".py") else source


def _beyond(tasks: Minari, world: Environment) -> Iterator[Verdict]:
    """Recorded actions that the environment does not take: a critic would learn what nobody did."""
    data = tasks.recording
    low_A, high_A = map(np.array, world.limits)
    sizes_2A = np.abs([low_A, high_A])
    rounding_A = ROUNDING * np.where(np.isfinite(sizes_2A), sizes_2A, 0).max(0)
    over_ESA = [(e.action_SA < low_A - rounding_A) | (e.action_SA > high_A + rounding_A) for e in data.episodes]
    count_E = [int(over_SA.any(1).sum()) for over_SA in over_ESA]
    if not any(count_E):
        return
    first = next(n for n, count in enumerate(count_E) if count)
    step, number = np.argwhere(over_ESA[first])[0]
    yield Refusal(
        f"{tasks.dataset} has {sum(count_E):,} of {data.steps:,} actions outside of the bounds of {world.source}, first in episode "
        f"{first} (from 0), step {step}: {data.episodes[first].action_SA[step, number]:g} as number {number}, where {low_A[number]:g} "
        f"to {high_A[number]:g} is taken; record actions in its units, clipped as it takes them"
    )


def recorded(data: Recording) -> tuple[TrainBatch, Bool[Tensor, " K"]]:
    """Every step as a row of its own, in the order of the episodes, and whether the next row is the very next step."""
    episodes = data.episodes

    def stacked(values: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(values))

    length_E = [episode.length for episode in episodes]
    last_K = torch.zeros(data.steps, dtype=torch.bool)
    last_K[torch.tensor(length_E).cumsum(0) - 1] = True
    ended_K = torch.tensor([episode.terminated for episode in episodes]).repeat_interleave(torch.tensor(length_E))
    zero_N1 = torch.zeros(data.steps, 1)
    facts: dict[str, Tensor] = {}
    if data.costs:
        cost_E = [episode.cost_S for episode in episodes if episode.cost_S is not None]
        facts = {
            COST_HERE: stacked([cost_S[:-1] for cost_S in cost_E])[:, None],
            COST_AFTER: stacked([cost_S[1:] for cost_S in cost_E])[:, None],
        }
    rows = TrainBatch(
        mask_NS=torch.ones(data.steps, 1, dtype=torch.bool),
        behavior_NS=zero_N1,
        version_NS=torch.zeros(data.steps, 1, dtype=torch.long),
        reward_NS=stacked([episode.reward_S for episode in episodes])[:, None],
        facts=facts,
        decisions=Steps(
            observation_NSO=stacked([episode.observation_SO[:-1] for episode in episodes])[:, None],
            action_NSA=stacked([episode.action_SA for episode in episodes])[:, None],
            final_NO=stacked([episode.observation_SO[1:] for episode in episodes]),
            length_N=torch.ones(data.steps, dtype=torch.long),
            terminated_N=last_K & ended_K,
        ),
    )
    return rows, ~last_K
