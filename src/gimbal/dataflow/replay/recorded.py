"""Recorded episodes as rows of single decisions, and whether a run can learn from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.environments.gym import Environment, Gymnasium
from gimbal.environments.minari import Minari
from gimbal.environments.recording import Recording
from gimbal.policies.control import STEPS, Steps
from gimbal.records import TrainBatch

COST_HERE, COST_AFTER = "cost/here", "cost/after"  # facts [N, 1]: of the observation before an action, and after it


def unlike(tasks: Minari, whole: Composition) -> Iterator[Verdict]:
    """What was recorded, what the policy sees and does, and what the evaluation plays are the same."""
    data, policy = tasks.recording, whole.run.policy
    if policy.family.unit != STEPS.unit:
        yield Refusal(
            f"{tasks.dataset} holds episodes of control, and {type(policy).__name__} does not act: begin with iql, cql, td3_bc or bc"
        )
        return
    if (own := policy.load().interface) != data.interface:
        yield Refusal(
            f"{tasks.dataset} has {data.interface}, and the policy {own}: set policy.observations and policy.actions (Gaussian, "
            "SquashedGaussian or Deterministic for real actions, Categorical for choices)"
        )
    for played in whole.all(Gymnasium):
        if (there := Environment(played.source).interface) != data.interface:
            yield Refusal(
                f"{tasks.dataset} has {data.interface}, and {played.source}, which the evaluation plays, {there}: "
                f"held_out.tasks.environment={data.source or 'NAME'}, or held_out=none"
            )


def rows_of(data: Recording) -> TrainBatch:
    """Every step as a row of its own, in the order of the episodes."""
    return recorded(data)[0]


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
