"""What updates share that learn values of actions from single decisions of any age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gimbal.dataflow.replay.transitions import AHEAD, FRESH, IMPORTANCE, MOVE, split
from gimbal.learning.updates.base import POLICY, AbstractUpdate, Loss, Metrics, Models, Stateful
from gimbal.policies.control import AbstractControlPolicy, Steps
from gimbal.records import TrainBatch

CRITIC, TARGET = "critic", "target"
BACKED, DISCOUNT = "backed/reward", "backed/discount"  # facts [N, S]: R and d of each step
SEEN = "seen"  # what is remembered: how many decisions have come in


class DataCount:
    """Decisions received so far."""

    def __init__(self) -> None:
        self.count = 0

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.count = state["count"]


@dataclass(frozen=True, kw_only=True)
class Explore:
    """How much a policy explores: ``first``, then linearly to ``last`` over the first ``over`` decisions."""

    first: float = 1.0
    last: float = 0.1
    over: int = 1000

    def __post_init__(self) -> None:
        if not 0 < self.first <= 1 or not 0 < self.last <= 1 or self.over < 0:
            raise ValueError(
                f"Explore has first {self.first} and last {self.last}, which are above 0 and at most 1, and over {self.over}, which "
                "counts decisions"
            )

    def at(self, seen: int) -> float:
        share = min(1.0, seen / self.over) if self.over else 1.0
        return self.first + share * (self.last - self.first)


@dataclass(frozen=True, kw_only=True)
class AbstractOnDecisions(AbstractUpdate):
    """Learns from single decisions of any age. The store samples the rows of each move (``Transitions``,
    ``Recordings``); without such a store each step is ``optimization.minibatches`` moves on its own rows.
    """

    off_policy: ClassVar[bool] = True

    def explores(self) -> Explore | None:
        """How much its policy explores, where the update sets it rather than the policy."""
        return None

    def noises(self, models: Models, batch: TrainBatch) -> Mapping[str, Tensor]:
        """The noise of all actions that the losses will draw, [N, S, A]: so it does not depend on how the batch is cut up."""
        return {}

    def init(self, models: Models) -> dict[str, Stateful]:
        return {SEEN: DataCount()}

    def begun(self, models: Models) -> None:
        if (
            explore := self.explores()
        ) is not None:  # else an evaluation before the first step would have the policy's own
            models.policy.get_buffer("explore").fill_(explore.at(0))

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        """What has come in is shown to the policy's statistics, once; what remains is drawn for a move, unless there is none."""
        number_N = batch.facts.get(MOVE)
        fresh_N = batch.mask_NS.new_ones(batch.shape[0]) if number_N is None else number_N == FRESH
        told = self._enter(models, batch, fresh_N)
        if number_N is not None and 0 < (drawn := int((~fresh_N).sum())) < len(fresh_N):
            batch = split(batch, [drawn, len(fresh_N) - drawn])[0]  # a view: what has come in stands behind it
        facts = dict(self.noises(models, batch))
        if number_N is not None and batch.shape[1] == 1 and batch.full:
            _, move_N, count_M = batch.facts[MOVE].unique_consecutive(return_inverse=True, return_counts=True)
            facts["weight"] = (1 / count_M)[move_N][:, None].expand(batch.shape)
        return batch.with_columns(facts).to(models.device), told

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        if "weight" in minibatch.facts:  # those of all moves at once, where each row is one decision
            return minibatch, {}
        return super().survey(models, minibatch)

    def _enter(self, models: Models, batch: TrainBatch, fresh_N: Bool[Tensor, " N"]) -> Metrics:
        steps, policy, seen = batch.decisions, models.policy, models.parts[SEEN]
        assert isinstance(steps, Steps) and isinstance(policy, AbstractControlPolicy), type(steps)
        taken_NS = batch.mask_NS & fresh_N[:, None]
        if policy.normalizer is not None:
            policy.normalizer.observe(steps.observation_NSO[taken_NS])
        seen.count += int(taken_NS.sum())
        if (explore := self.explores()) is None:
            return {}
        share = explore.at(seen.count)
        policy.get_buffer("explore").fill_(share)
        return {"explore": share}

    def moves(self, batch: TrainBatch) -> list[int] | None:
        number_N = batch.facts.get(MOVE)
        if number_N is None:
            return None
        if bool((number_N == FRESH).any()):
            return []
        return number_N.unique_consecutive(return_counts=True)[1].tolist()


@dataclass(frozen=True, kw_only=True)
class AbstractOffPolicy(AbstractOnDecisions):
    """Bootstraps from the next observation: y = R + d Q'(o', .) with R the discounted rewards of a row's steps, o' the
    observation after the last of them, and d = ``gamma``^steps, 0 where the environment ended there. A length limit is not an end: o'
    is then the episode's own last observation, never the first of the next one.

    Q' follows Q: Q' <- Q' + ``tau`` (Q - Q') after each move of Q.

    ``begin_from`` is the directory of a run, or of one of its checkpoints, whose critics this one begins with: every model besides the
    policy that a loss moves here, or that follows such a one, and that the run has by the same name (``critic``, ``target``,
    ``value``, ``temperature``, ``flow``). Optimisers begin anew, and so do counts of decisions (``explore``). Critics see observations
    as that run's policy did: begin with it too (``policy.model``).
    """

    gamma: float = 0.99
    tau: float = 0.005
    begin_from: str = ""

    @property
    def begins_from(self) -> str:
        return self.begin_from

    def __post_init__(self) -> None:
        for name in ("gamma", "tau"):
            if not 0 <= vars(self)[name] <= 1:
                raise ValueError(f"{type(self).__name__}.{name} is {vars(self)[name]}; it must be in [0, 1]")

    def prepare(self, models: Models, batch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        batch, told = super().prepare(models, batch)
        reward_NS, discount_NS = self._backed(batch)  # once for all moves
        return batch.with_columns({BACKED: reward_NS, DISCOUNT: discount_NS}), told

    def backed(self, batch: TrainBatch) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        """R and d of each step that counts."""
        counted = counted_of(batch)
        if BACKED in batch.facts:
            return counted(batch.facts[BACKED]), counted(batch.facts[DISCOUNT])
        reward_NS, discount_NS = self._backed(batch)  # of a batch that an update made for itself
        return counted(reward_NS), counted(discount_NS)

    def _backed(self, batch: TrainBatch) -> tuple[Float[Tensor, "N S"], Float[Tensor, "N S"]]:
        lasting_NS = (~steps_of(batch).ended_NS).float()
        if AHEAD not in batch.facts:
            return batch.column("reward_NS", self), self.gamma * lasting_NS
        ahead_NSn = batch.facts[AHEAD]
        power_n = self.gamma ** torch.arange(ahead_NSn.shape[-1], device=ahead_NSn.device)
        known_NS = (~ahead_NSn.isnan()).sum(-1)
        return (ahead_NSn.nan_to_num() * power_n).sum(-1), self.gamma**known_NS * lasting_NS


def steps_of(batch: TrainBatch) -> Steps:
    assert isinstance(batch.decisions, Steps), type(batch.decisions)
    return batch.decisions


def counted_of(batch: TrainBatch) -> Callable[[Tensor], Tensor]:
    """What takes a column [N, S, ...] to the decisions that count, [K, ...]: a view of it where each row is one, as in minibatches of
    ``Transitions``, for an index by a mask takes as long as a layer of a small network."""
    if batch.shape[1] == 1 and batch.full:
        return lambda x_NSX: x_NSX.squeeze(1)
    return lambda x_NSX: x_NSX[batch.mask_NS]


def counting(batch: TrainBatch, weight_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """The weights in a loss of values: less where the store draws a decision more often than others."""
    return weight_K * counted_of(batch)(batch.facts[IMPORTANCE]) if IMPORTANCE in batch.facts else weight_K


def fitted(models: Models, batch: TrainBatch, normal_KO: Float[Tensor, "K O"], target_K: Float[Tensor, " K"]) -> Loss:
    """The loss of the critic: sum w sum_m (Q_m(o, a) - y)^2."""
    counted = counted_of(batch)
    q_KM = models[CRITIC](normal_KO, counted(steps_of(batch).action_NSA))
    error_K = (q_KM - target_K[:, None]).square().sum(-1)
    weight_K = counted(batch.facts["weight"])
    told = means(weight_K, {"q/loss": error_K, "q/mean": q_KM.mean(-1), "q/target": target_K})
    return Loss(of=(CRITIC,), value=summed(counting(batch, weight_K), error_K), metrics=told)


def off_by(models: Models, batch: TrainBatch, target_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
    """|y - Q| of the critic for the actions that were taken, the mean over its networks."""
    steps, counted = steps_of(batch), counted_of(batch)
    policy: AbstractControlPolicy = models[POLICY]
    normal_KO = policy.normal(counted(steps.observation_NSO))
    return (models[CRITIC](normal_KO, counted(steps.action_NSA)) - target_K[:, None]).abs().mean(-1)


def least(models: Models, batch: TrainBatch, worth_KM: Float[Tensor, "K M"], subset: int) -> Float[Tensor, " K"]:
    """The least of all M, or of ``subset`` of them that are drawn anew for each move (REDQ, arXiv:2101.05982)."""
    if subset:
        # By the move, so that all micro-batches of one have the same.
        names = () if MOVE not in batch.facts else (int(batch.facts[MOVE][0]),)
        chosen_B = models.random("subset", *names).permutation(worth_KM.shape[1])[:subset]
        worth_KM = worth_KM[:, torch.from_numpy(chosen_B).to(worth_KM.device)]
    return worth_KM.min(-1).values


def summed(weight_K: Float[Tensor, " K"], x_K: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    """sum w x, in one call of torch and one on the way back."""
    return weight_K.to(x_K.dtype) @ x_K


def means(weight_K: Float[Tensor, " K"], columns: Mapping[str, Tensor]) -> Metrics:
    with torch.no_grad():
        stacked = torch.stack([x_K.to(weight_K.dtype) for x_K in columns.values()])
        return dict(zip(columns, (stacked @ weight_K).tolist(), strict=True))
