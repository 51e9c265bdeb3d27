"""Rollouts drawn in proportion to a reward: log-probabilities of whole rollouts fitted to their returns, whoever drew them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.composition import BALANCES, ENTROPY, REFERENCE, Advice, Composition, Refusal, Verdict
from gimbal.objectives.base import AbstractCorrection, AbstractMask, AbstractObjective
from gimbal.ops import SequenceSum
from gimbal.records import Terms, TrainBatch


@dataclass(frozen=True, kw_only=True)
class TrajectoryBalance(AbstractObjective):
    """Fits the policy to reference exp(return / beta) / Z by rollouts that any policy drew (trajectory balance, arXiv:2201.13259; for
    language models TBA, arXiv:2503.18929).

    With h_i = sum_t (logprob - reference), R_i the return of row i, and log Z the mean over its group of R / beta - h, without
    gradient (VarGrad, arXiv:2010.10436):  loss_i = beta / 2 (log Z + h_i - R_i / beta)^2.
    A row's loss is spread evenly over its decisions, so SequenceSum makes it the mean over rows. It reads returns, not advantages,
    and no ratio: stale and replayed data need no weight. Data that never holds a rollout says nothing about it.

    - policy = reference: the gradient of Reinforce with GroupCentered and SequenceSum.
    - on-policy, groups of G: in expectation 1 - 1 / G of the gradient of beta KL(policy | reference) - E[return].
    - equal returns: the reference is the minimum. A group of one: no loss.
    - every rollout in the group, in any proportions: the minimum is reference exp(return / beta) / Z.
    - 1 / beta of AdvantageRegression(free=True) on GroupCentered.

    Published: the square alone, which is 2 / beta of this one (here the size of the gradient does not go with ``beta``); ``beta`` .014,
    falling to .004 in 500 steps, and groups of 20. Ours: ``beta`` .1, at which a task solved in one of 100 rollouts is solved in .995
    of them at the minimum. A smaller one lets the policy go further from the reference.

    Confidence: verified; ours: the factor beta / 2, and ``beta``.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reference_NS", "reward_NS", "group_N"})
    whole_groups: ClassVar[bool] = True

    beta: float = 0.1

    def __post_init__(self) -> None:
        check_beta(self)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        precise_NS = logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32))
        return balanced(precise_NS - batch.column("reference_NS", self), batch, self)

    def effects(self) -> frozenset[str]:
        return frozenset({BALANCES, REFERENCE})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from alone(self, whole)


@dataclass(frozen=True, kw_only=True)
class FlowBalance(AbstractObjective):
    """Fits the policy to exp(return / beta) / Z by rollouts that any policy drew: TrajectoryBalance without a reference, as in a
    GFlowNet (arXiv:2106.04399, arXiv:2201.13259).

    With h_i = sum_t logprob, R_i the return of row i, and log Z the mean over its group of R / beta - h, without gradient:
    loss_i = beta / 2 (log Z + h_i - R_i / beta)^2.
    Where several ways lead to the same end, an environment that pays log P_B(s | s') for each step from s to s' makes ends, not ways,
    be drawn in proportion, as ``environments/hypergrid.py`` does (arXiv:2310.12934).

    - TrajectoryBalance where the reference gives all rollouts the same probability.
    - on-policy, groups of G: in expectation 1 - 1 / G of the gradient of -E[return] - beta H(rollouts).
    - every rollout in the group, in any proportions: the minimum is exp(return / beta) / Z.

    Published: a learned log Z at ten times the rate, and the square alone. Ours: log Z as in TrajectoryBalance.

    Confidence: verified; ours: the factor beta / 2.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"reward_NS", "group_N"})
    whole_groups: ClassVar[bool] = True

    beta: float = 1.0

    def __post_init__(self) -> None:
        check_beta(self)

    def __call__(self, logprob_NS: Float[Tensor, "N S"], batch: TrainBatch) -> Terms:
        return balanced(logprob_NS.to(torch.promote_types(logprob_NS.dtype, torch.float32)), batch, self)

    def effects(self) -> frozenset[str]:
        return frozenset({BALANCES, ENTROPY})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from alone(self, whole)


def balanced(h_NS: Float[Tensor, "N S"], batch: TrainBatch, part: TrajectoryBalance | FlowBalance) -> Terms:
    """The loss of each row, spread over its decisions, by what it sums over them."""
    if batch.fork_N is not None and bool((batch.fork_N > 0).any()):
        raise ValueError(
            f"{type(part).__name__} sums the log-probabilities of whole rollouts, and rows of this batch split off others, whose first "
            "decisions they do not count: use a workflow without branches, or another objective"
        )
    h_N, there_N = h_NS.where(batch.mask_NS, 0).sum(-1), batch.mask_NS.any(-1)
    log_weight_N = batch.column("reward_NS", part).sum(-1) / part.beta
    # Rows without decisions are in no group of the others.
    group_N, alone_N = batch.column("group_N", part), torch.arange(len(there_N), device=there_N.device)
    log_z_N = ops.group_mean(log_weight_N - h_N.detach(), torch.where(there_N, 2 * group_N, 2 * alone_N + 1))
    error_N = log_z_N + h_N - log_weight_N
    spread_NS = batch.mask_NS / batch.mask_NS.sum(-1, keepdim=True).clamp(min=1)
    metrics = {
        "balance/error": error_N.detach().abs()[:, None] * batch.mask_NS,
        "balance/fitted": h_N.detach()[:, None] * batch.mask_NS,
        "balance/log_z": log_z_N[:, None] * batch.mask_NS,
    }
    return Terms(part.beta / 2 * error_N.square()[:, None] * spread_NS, metrics)


def check_beta(part: TrajectoryBalance | FlowBalance) -> None:
    if not 1e-9 <= part.beta <= 1e9:
        raise ValueError(
            f"{type(part).__name__}.beta is {part.beta}; it is the temperature of returns, from 1e-9 to 1e9: smaller prefers the best "
            "rollouts more"
        )


def alone(part: TrajectoryBalance | FlowBalance, whole: Composition) -> Iterator[Verdict]:
    """What both say about a run."""
    name = type(part).__name__
    for correction in whole.all(AbstractCorrection):
        yield Refusal(
            f"{name} has the same minimum whoever drew the data, so {type(correction).__name__} has nothing to correct: correction=none"
        )
    for mask in whole.all(AbstractMask):
        yield Refusal(f"{name} sums whole rollouts, and {type(mask).__name__} takes decisions out of them: masks=()")
    if not whole.has(SequenceSum):
        yield Advice(f"the loss of {name} is over whole rollouts: set aggregation=SequenceSum()")
