"""SEQUOIA: Q-learning over combinatorially many actions, whose best one is found exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, TELLS_ERRORS, Composition, Refusal, Verdict
from gimbal.dataflow.replay.transitions import MOVE
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec, Stateful
from gimbal.learning.updates.off_policy import (
    TARGET,
    AbstractOffPolicy,
    Explore,
    counted_of,
    counting,
    means,
    steps_of,
    summed,
)
from gimbal.policies.combinatorial import Combinatorial, CombinatorialPolicy
from gimbal.records import TrainBatch

BEST = "best"  # what is remembered


class BestActions:
    """The best action of each observation that was asked for, until they are forgotten."""

    def __init__(self) -> None:
        self.known: dict[tuple[float, ...], Tensor] = {}
        self.solved = 0  # programs, in all

    def of(self, policy: CombinatorialPolicy, seen_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        keys = [tuple(row) for row in seen_KO.tolist()]
        new = [n for n, key in enumerate(keys) if key not in self.known and key not in keys[:n]]
        if new:
            found_MA = policy.best(seen_KO[new]).cpu()
            self.known |= {keys[n]: action_A for n, action_A in zip(new, found_MA, strict=True)}
            self.solved += len(new)
        return torch.stack([self.known[key] for key in keys]).to(seen_KO.device)

    def state_dict(self) -> dict[str, Any]:
        seen = torch.tensor(list(self.known), dtype=torch.float64)
        return {
            "seen": seen,
            "best": torch.stack([*self.known.values()]) if self.known else seen,
            "solved": self.solved,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.known = dict(zip(map(tuple, state["seen"].tolist()), state["best"], strict=True))
        self.solved = state["solved"]


@dataclass(frozen=True, kw_only=True)
class CombinatorialQ(AbstractOffPolicy):
    """Q-learning with a network over observations and binary actions, of which the best feasible one is a mixed-integer program
    (SEQUOIA, arXiv:2503.01919).

    For each minibatch of steps (o, a, r, o', ended), w being 1 / their number:

        policy        sum w (Q(o, a) - y)^2 / 2,   y = r + gamma (1 - ended) Q'(o', a'),   a' = argmax_a Q'(o', a), rows a <= limits

    Q is the policy (``policies.Combinatorial``), which solves the same program when it acts. Q' follows it by ``tau`` after each move.
    a' of an observation is remembered and taken again, valued by the present Q', until after ``renew`` moves all are forgotten: y is
    then never above the largest value and one program serves many moves. ``program/solved`` counts programs of targets so far.

    - ``renew`` = 1: the largest value of Q', in every move.
    - ``gamma`` = 0: Q is fitted to rewards, and the policy is myopic; no program is solved for a target.

    Published: hidden (16, 32), gamma .99, 2.5e-4 with AdamW, 32 steps per minibatch, explore .9 to .05, Q' copied every 300 moves, best
    actions remembered for five episodes, priorities by errors (``store.preference='Prioritized()'``).

    Confidence: partial; left out: a first Q fitted to rewards of random and myopic actions, minibatches with things added to and taken
    from recorded actions, and paths among the constraints.
    """

    renew: int = 100
    explore: Explore = Explore(first=0.9, last=0.05, over=1000)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.renew < 1:
            raise ValueError(
                f"CombinatorialQ.renew is {self.renew}; it is for how many moves best actions are remembered, from 1"
            )

    def explores(self) -> Explore:
        return self.explore

    def models(self) -> dict[str, ModelSpec]:
        return {
            POLICY: ModelSpec(optimizer=self.optimization.of_policy()),
            TARGET: ModelSpec(follows=POLICY, rate=self.tau),
        }

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD, TELLS_ERRORS})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Combinatorial):
            yield Refusal(
                f"CombinatorialQ learns the values of sets of actions, and {type(whole.run.policy).__name__} has none: "
                "policy='Combinatorial(observations=..., actions=..., rows=..., limits=...)'"
            )

    def init(self, models: Models) -> dict[str, Stateful]:
        return {**super().init(models), BEST: BestActions()}

    def survey(self, models: Models, minibatch: TrainBatch) -> tuple[TrainBatch, Metrics]:
        number_N = minibatch.facts.get(MOVE)
        if number_N is None or not int(number_N[0]) % self.renew:
            models.parts[BEST].known.clear()
        return super().survey(models, minibatch)

    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        return {"program/solved": float(models.parts[BEST].solved)}

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        weight_K = counted_of(batch)(batch.facts["weight"])
        target_K, q_K = self._target(models, batch), _taken(models, batch)
        loss_K = (q_K - target_K).square() / 2
        yield Loss(
            of=(POLICY,),
            value=summed(counting(batch, weight_K), loss_K),
            metrics=means(weight_K, {"loss": loss_K, "q/mean": q_K, "q/target": target_K}),
        )

    @torch.no_grad()
    def errors(self, models: Models, batch: TrainBatch) -> Float[Tensor, " N"]:
        return (_taken(models, batch) - self._target(models, batch)).abs()

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
        """y of each step that counts."""
        reward_K, discount_K = self.backed(batch)
        if not self.gamma:
            return reward_K
        target: CombinatorialPolicy = models[TARGET]
        next_KO = counted_of(batch)(steps_of(batch).next_NSO)
        return reward_K + discount_K * target.values(next_KO, models.parts[BEST].of(target, next_KO))


def _taken(models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
    """The values of the actions that were taken."""
    policy: CombinatorialPolicy = models[POLICY]
    steps, counted = steps_of(batch), counted_of(batch)
    return policy.values(counted(steps.observation_NSO), counted(steps.action_NSA))
