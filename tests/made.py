"""Records made by hand, for tests that need some and not what is in them."""

from collections.abc import Sequence
from typing import Any

import torch

from gimbal.objectives import StepKL
from gimbal.policies.paths import Paths
from gimbal.policies.samplers import log_density
from gimbal.policies.token import Sampling, Tokens
from gimbal.records import Group, Rollout, Task, TrainBatch

TASK = Task(id="t")


def rollout(task: Task = TASK, **fields: Any) -> Rollout:
    """One decision that counts, sampled with certainty by version 0, or as many as ``decisions`` has; any field may be given."""
    decisions = fields.pop("decisions", Tokens.row([1], [2]))
    zero_S = torch.zeros(decisions.shape[1])
    usual = {"behavior_S": zero_S, "version_S": zero_S.long(), "mask_S": zero_S == 0, "reward_S": zero_S}
    usual |= {"sample": 0, "stop": "stop", "sampling": Sampling()}
    return Rollout(task=task, decisions=decisions, **(usual | fields))


def group(task: Task, *rollouts: Rollout, index: int = 0) -> Group:
    return Group.of(index, task, rollouts)


def batch(seed: int = 0, apart: float = 0.5) -> tuple[torch.Tensor, TrainBatch]:
    """(logprob_NS, a batch around it): four ragged rows of up to six decisions in three turns, all columns in float64."""
    g = torch.Generator().manual_seed(seed)

    def draw() -> torch.Tensor:
        return torch.randn(4, 6, generator=g, dtype=torch.float64)

    logprob_NS = -draw().abs()
    return logprob_NS, TrainBatch(
        mask_NS=torch.arange(6) < torch.tensor([[6], [4], [1], [5]]),
        proximal_NS=logprob_NS + apart * draw(),
        behavior_NS=logprob_NS + 0.5 * draw(),
        reference_NS=logprob_NS + 0.5 * draw(),
        advantage_NS=draw(),
        turn_NS=torch.tensor([0, 0, 1, 1, 1, 2]).expand(4, 6).clone(),
    )


def finished(reward_N: Sequence[float], group_N: Sequence[int], side: int, steps: int = 4) -> TrainBatch:
    """Finished samples of one channel with these rewards, images of ``side`` x ``side``; of a path only its length is there."""
    rows, zero_NS = len(reward_N), torch.zeros(len(reward_N), steps)
    states = torch.randn(rows, steps + 1, 1, side, side, generator=torch.Generator().manual_seed(0))
    mask_NS = torch.tensor([[False] * (steps - 1) + [True]] * rows)
    decisions = Paths(
        state_NXD=states,
        level_NSL=torch.zeros(rows, steps, 4),
        time_NS=zero_NS,
        amplitude_NS=zero_NS,
        mean_NSD=states[:, 1:],
        std_NS=zero_NS,
        label_N=torch.full((rows,), -1),
        length_N=torch.full((rows,), steps),
        sampler="ode",
        reduce="mean",
    )
    return TrainBatch(
        mask_NS=mask_NS,
        reward_NS=mask_NS * torch.tensor(reward_N)[:, None],
        group_N=torch.tensor(group_N),
        episode_N=torch.arange(rows),
        decisions=decisions,
    )


def one_step(
    mean: torch.Tensor, other: torch.Tensor, std: torch.Tensor, seed: int
) -> tuple[float, torch.Tensor, torch.Tensor]:
    """(``StepKL`` of one Gaussian step from another mean's, log-densities of 200,000 draws of it: its own, the other's)."""
    facts = {
        "mean_NSD": mean[None],
        "reference/mean_NSD": other[None],
        "std_NS": std[None],
        "scale_NS": torch.ones(1, 1),
    }
    batch = TrainBatch(mask_NS=torch.ones(1, 1, dtype=torch.bool), facts=facts)
    kl = float(StepKL(coef=1.0)(torch.zeros(1, 1), batch).loss_NS)
    g = torch.Generator().manual_seed(seed)
    drawn = mean + std * torch.randn(200_000, mean.shape[-1], generator=g)
    own, its = (log_density(drawn, m.expand_as(drawn), std.expand(len(drawn)), 1.0) for m in (mean, other))
    return kl, own, its
