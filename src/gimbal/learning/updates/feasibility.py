"""Safe offline learning: reward where a constraint can be kept for ever, the least violation where it cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.advantages.reward_shaping.priced_cost import COST_AFTER
from gimbal.composition import Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.dataflow.replay.recorded import COST_HERE
from gimbal.dataflow.replay.recordings import Recordings
from gimbal.environments.minari import Minari
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.implicit_q import VALUE, expectile_loss
from gimbal.learning.updates.off_policy import CRITIC, TARGET, AbstractOffPolicy, counted_of, means, steps_of
from gimbal.ops import stable_hash
from gimbal.policies.control import AbstractControlPolicy
from gimbal.policies.gaussian import Gaussian
from gimbal.policies.squashed import SquashedGaussian
from gimbal.records import TrainBatch

DANGER, DANGER_CRITIC, DANGER_TARGET = "danger_value", "danger_critic", "danger_target"


@dataclass(frozen=True, kw_only=True)
class FeasibilityGuided(AbstractOffPolicy):
    """Values of constraint and reward, each in-sample, and a policy by weighted imitation (FISOR, arXiv:2401.10700).

    The constraint is h(o) = ``violation`` where the recorded cost of o is above 0, else -1. V_h(o) estimates the worst h on the
    best way that the data show from o (Hamilton-Jacobi reachability, discounted), and o is *feasible* where V_h(o) <= 0. For each
    minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number, A = min_m Q'_m(o, a) - V(o),
    H = max_m Q'_h,m(o, a):

        danger_value    sum w |(1 - safe_expectile) - [H < V_h]| (H - V_h(o))^2                low: the best action's
        value           sum w |expectile - [A < 0]| A^2                                        high, as in ImplicitQ
        policy          - sum w u log pi(a|o),   u = [H <= 0] min(exp(beta A), most)            where V_h(o) <= 0,
                                                 u = min(exp(escape (V_h(o) - H)), most_escape) elsewhere
        danger_critic   sum w sum_m (Q_h,m(o, a) - y_h)^2,   y_h = (1 - gamma) h(o) + gamma max(h(o), V_h(o'))
        critic          sum w sum_m (Q_m(o, a) - y)^2,       y = r + gamma (1 - ended) V(o')

    Where the environment ended, h(o') stands for V_h(o'). Q' and Q'_h follow by ``tau``. ``feasible/share`` is of the steps whose o is
    feasible, ``feasible/kept`` that of those whose action stays so.

    - No costs in the data: V_h is -1 everywhere, every step is kept, and the policy's loss is ImplicitQ's.
    - ``beta`` = 0 and ``escape`` = 0: behavior cloning of the steps that are kept.
    - ``safe_expectile`` = 1/2: V_h is the mean of Q'_h over the data: the danger of going on as the data do.

    Published: gamma .99, violation 25, both expectiles .9, beta 3, most 100, escape 5, most_escape 150, tau .005, all rates 3e-4, 256
    steps a minibatch; the policy is a diffusion model whose safest of 16 samples is played.

    Confidence: verified; ours: a Gaussian policy, which takes the middle of several kept actions, and plays its mode or a draw;
    h(o') at an end, in place of h(o).
    """

    critic: ActionValues
    expectile: float = 0.9
    beta: float = 3.0
    most: float = 100.0
    violation: float = 25.0
    safe_expectile: float = 0.9
    escape: float = 5.0
    most_escape: float = 150.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (0 < self.expectile < 1 and 0 < self.safe_expectile < 1):
            raise ValueError(
                f"FeasibilityGuided has expectile {self.expectile} and safe_expectile {self.safe_expectile}; both are between 0 and 1"
            )
        positive = {name: vars(self)[name] for name in ("violation", "most", "most_escape")}
        if wrong := [f"{name} {value}" for name, value in positive.items() if not 0 < value < math.inf]:
            raise ValueError(f"FeasibilityGuided has {' and '.join(wrong)}; it must be above 0 and finite")
        if not 0 <= self.beta < math.inf or not 0 <= self.escape < math.inf:
            raise ValueError(f"FeasibilityGuided has beta {self.beta} and escape {self.escape}; both are 0 or above")

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        critic = rates.adamw(rates.critic_learning_rate)
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            VALUE: ModelSpec(load=partial(self.critic.of_states, "V"), optimizer=critic),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=critic),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
            DANGER: ModelSpec(load=partial(self.critic.of_states, "V_h"), optimizer=critic),
            DANGER_CRITIC: ModelSpec(load=self._danger_critic, optimizer=critic),
            DANGER_TARGET: ModelSpec(follows=DANGER_CRITIC, rate=self.tau),
        }

    def _danger_critic(self, seed: int) -> nn.Module:
        return self.critic.load(stable_hash("Q_h", seed) % 2**63)

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Gaussian) and not whole.has(SquashedGaussian):
            yield Refusal(
                f"FeasibilityGuided makes recorded actions likelier, and {type(whole.run.policy).__name__} has no density of real "
                "actions: policy='Gaussian(observations=..., actions=...)'"
            )
        tasks = whole.run.tasks
        if not isinstance(whole.run.store, Recordings):
            yield Refusal("FeasibilityGuided learns from recorded costs, which only store='Recordings()' draws")
        elif isinstance(tasks, Minari):
            yield from _constrains(tasks)

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, steps, counted = models.policy, steps_of(batch), counted_of(batch)
        assert isinstance(policy, AbstractControlPolicy)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        action_KA = counted(steps.action_NSA)
        normal_KO, next_KO = policy.normal(seen_KO), policy.normal(counted(steps.next_NSO))
        with torch.no_grad():
            danger_K = models[DANGER_TARGET](normal_KO, action_KA).max(-1).values
            worth_K = models[TARGET](normal_KO, action_KA).min(-1).values
        for name, of_K, expectile in ((DANGER, danger_K, 1 - self.safe_expectile), (VALUE, worth_K, self.expectile)):
            value_K = models[name](normal_KO)[:, 0]
            error_K = expectile_loss(of_K - value_K, expectile)
            told = {f"{name}/loss": error_K, f"{name}/mean": value_K}
            yield Loss(of=(name,), value=(weight_K * error_K).sum(), metrics=means(weight_K, told))

        with torch.no_grad():
            here_K, value_K = models[DANGER](normal_KO)[:, 0], models[VALUE](normal_KO)[:, 0]
        counts_K, told = self.weights(here_K, danger_K, worth_K - value_K)
        loss_K = -counts_K * policy.assess(seen_KO, action_KA, 1.0)[0]
        yield Loss(
            of=(POLICY,),
            value=(weight_K * loss_K).sum(),
            metrics={**means(weight_K, {"loss": loss_K, "weight/mean": counts_K, **told})},
        )

        with torch.no_grad():
            reward_K, discount_K = self.backed(batch)
            after_K, value_K = models[DANGER](next_KO)[:, 0], models[VALUE](next_KO)[:, 0]
        worst_K = self._worst(batch, after_K)
        for name, label, target_K in (
            (DANGER_CRITIC, "danger", worst_K),
            (CRITIC, "q", reward_K + discount_K * value_K),
        ):
            q_KM = models[name](normal_KO, action_KA)
            error_K = (q_KM - target_K[:, None]).square().sum(-1)
            told = {f"{label}/loss": error_K, f"{label}/mean": q_KM.mean(-1), f"{label}/target": target_K}
            yield Loss(of=(name,), value=(weight_K * error_K).sum(), metrics=means(weight_K, told))

    def weights(
        self, here_K: Float[Tensor, " K"], danger_K: Float[Tensor, " K"], above_K: Float[Tensor, " K"]
    ) -> tuple[Float[Tensor, " K"], dict[str, Tensor]]:
        """u of each step, by V_h(o), H and A."""
        feasible_K, kept_K = here_K <= 0, danger_K <= 0
        earning_K = kept_K * (self.beta * above_K).exp().clamp(max=self.most)
        leaving_K = (self.escape * (here_K - danger_K)).exp().clamp(max=self.most_escape)
        counts_K = torch.where(feasible_K, earning_K, leaving_K)
        clipped_K = counts_K >= torch.where(feasible_K, self.most, self.most_escape)
        shares = {"feasible/share": feasible_K, "feasible/kept": feasible_K & kept_K, "weight/clipped": clipped_K}
        return counts_K, {name: share_K.float() for name, share_K in shares.items()}

    def _worst(self, batch: TrainBatch, after_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        """y_h of each step, by V_h(o')."""
        counted = counted_of(batch)
        here_K, end_K = (self._constraint(counted(batch.column(name, self))) for name in (COST_HERE, COST_AFTER))
        after_K = torch.where(counted(steps_of(batch).ended_NS), end_K, after_K)
        return (1 - self.gamma) * here_K + self.gamma * torch.maximum(here_K, after_K)

    def _constraint(self, cost_K: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        """h."""
        return torch.where(cost_K > 0, self.violation, -1.0)


def _constrains(tasks: Minari) -> Iterator[Verdict]:
    """Costs in every episode, some above 0 and some not."""
    data = tasks.recording
    seen, violated, silent = data.steps + len(data.episodes), data.violations, data.without_costs
    if silent:
        some = len(silent) < len(data.episodes)
        where = (
            f" in {len(silent)} of {len(data.episodes)} episodes, first in episode {silent[0]} (from 0)" if some else ""
        )
        yield Refusal(
            f"FeasibilityGuided keeps a constraint, and {tasks.dataset} says nothing of it{where}: each episode must hold infos/cost, "
            "a number for each observation, above 0 where the constraint is violated; without one begin with iql"
        )
    elif violated in (0, seen):
        yield Refusal(
            f"FeasibilityGuided tells violations of a constraint from the rest, and in {tasks.dataset} {violated:,} of {seen:,} "
            "observations violate it (infos/cost above 0): record some of both, or begin with iql"
        )
