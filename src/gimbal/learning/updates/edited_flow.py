"""EXPO: a flow that clones, small edits of its actions that climb their value, and the best of both in acting and in targets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models, ModelSpec
from gimbal.learning.updates.flow_q import NEXT, cloning_noises
from gimbal.learning.updates.implicit_flow import cloning, gain, proposing
from gimbal.learning.updates.off_policy import CRITIC, TARGET, AbstractOffPolicy, counted_of, least, means, steps_of
from gimbal.learning.updates.soft_actor_critic import (
    TEMPERATURE,
    Temperature,
    check_subset,
    check_temperature,
    of_temperature,
)
from gimbal.policies.best_of import BestOf, BestOfPolicy
from gimbal.records import TrainBatch

EDIT = "noise/edit"  # fact: by which the action of a step is edited


@dataclass(frozen=True, kw_only=True)
class EditedFlow(AbstractOffPolicy):
    """A flow by imitation, a Gaussian edit of its actions by value, and the best of all proposals in targets too (EXPO,
    arXiv:2507.07986).

    The policy proposes actions of its flow, and each of them edited by at most ``policy.edit`` of the bound b (``BestOf``). For each
    minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number:

        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) min_m Q'_m(o', a'),
                      a' the proposal in o' with the largest score by Q'
        policy        sum w (mean_A (v(o, x_t, t) - (a / b - x_0))^2 + alpha log pi(e|o, a) - mean_m Q_m(o, b a~)),
                      a~ = clip(a / b + edit e, -1, 1),   e ~ pi(.|o, a) in (-1, 1)
        temperature   - l sum w (log pi(e|o, a) + entropy),   alpha = exp(l)

    with x_0, t and x_t as in ``ImplicitFlow``. The two terms of the policy move different networks: no value reaches the flow. Q'
    follows Q by ``tau``. ``subset`` is how many of the Q', drawn anew for each move, y takes the least of (0: all). ``entropy`` is the
    goal of e's, by default minus half the number of action dimensions. ``proposals/edited`` is the share of targets that an edited
    proposal won, ``proposals/gain`` by how much the best of a target's proposals is above their mean.

    - ``policy.edit`` = 0: the best of the flow's proposals, in acting and in targets; nothing edits.
    - ``policy.proposals`` = 1 and ``policy.edit`` = 0: the flow alone acts, and Q belongs to it.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: 8 proposals, edits of .05 to .7 by task, half of each minibatch recorded, ten critics with layer norm, the least of two
    of them, 20 moves of the critics for one of the policy, gamma .99, tau .005, all rates 3e-4.

    Confidence: partial (secondary notes, and code that builds on the authors'); ours: scores by the mean or the least of all Q', one
    move of each a time, log pi in units of the largest edit, edited actions are clipped, no moving average of the flow.
    """

    critic: ActionValues
    subset: int = 2
    alpha: float = 1.0
    entropy: float | None = None
    temperature_learning_rate: float = 3e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self, self.alpha, self.temperature_learning_rate)
        check_subset(self, self.subset, self.critic.members)

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def models(self) -> dict[str, ModelSpec]:
        rates = self.optimization
        return {
            POLICY: ModelSpec(optimizer=rates.of_policy()),
            CRITIC: ModelSpec(load=self.critic.load, optimizer=rates.adamw(rates.critic_learning_rate)),
            TARGET: ModelSpec(follows=CRITIC, rate=self.tau),
            TEMPERATURE: ModelSpec(load=lambda seed: Temperature(self.alpha), optimizer=of_temperature(self)),
        }

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from proposing(self, self.critic, whole)
        policy = whole.run.policy
        if isinstance(policy, BestOf) and policy.pick.reads_value:
            yield Refusal(
                f"policy.pick is {type(policy.pick).__name__}, which compares scores with V, and EditedFlow learns none: "
                "policy.pick='Best()', or begin with idql"
            )

    def begun(self, models: Models) -> None:
        super().begun(models)
        policy: BestOfPolicy = models[POLICY]
        policy.take_scores(models[TARGET])  # or the first step would change them without a move

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: BestOfPolicy = models[POLICY]
        n, s = batch.shape
        found = {NEXT: policy.noise(models.random(NEXT), n * s).reshape(n, s, -1)}
        if policy.edits is not None:
            found[EDIT] = policy.edits.noise(models.random(EDIT), n * s).reshape(n, s, -1)
        return cloning_noises(models, batch, policy.actions) | found

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: BestOfPolicy = models[POLICY]
        steps, counted = steps_of(batch), counted_of(batch)
        weight_K, action_KA = counted(batch.facts["weight"]), counted(steps.action_NSA)
        normal_KO = policy.normal(counted(steps.observation_NSO))

        target_K, told = self._target(models, batch)
        q_KM = models[CRITIC](normal_KO, action_KA)
        error_K = (q_KM - target_K[:, None]).square().sum(-1)
        told |= {"q/loss": error_K, "q/mean": q_KM.mean(-1), "q/target": target_K}
        yield Loss(of=(CRITIC,), value=(weight_K * error_K).sum(), metrics=means(weight_K, told))

        error_K = cloning(policy, batch)
        told = {"flow/loss": error_K}
        if policy.edits is None:
            yield Loss(of=(POLICY,), value=(weight_K * error_K).sum(), metrics=means(weight_K, told))
            return
        edited_KA, logprob_K = policy.edited(normal_KO, action_KA / policy.bound, counted(batch.facts[EDIT]))
        worth_K = models[CRITIC](normal_KO, policy.bound * edited_KA).mean(-1)
        log_alpha = models[TEMPERATURE].log
        loss_K = error_K + log_alpha.detach().exp() * logprob_K - worth_K
        told |= {"loss": loss_K, "entropy/edit": -logprob_K, "alpha": log_alpha.exp().expand_as(loss_K)}
        held = -policy.actions / 2 if self.entropy is None else self.entropy
        # Flow, edits and temperature have no weight in common: one pass back is enough for all three.
        apart = (weight_K * (logprob_K.detach() + held)).sum()
        value = (weight_K * loss_K).sum() - log_alpha * apart
        yield Loss(of=(POLICY, TEMPERATURE), value=value, metrics=means(weight_K, told))

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> tuple[Float[Tensor, " K"], dict[str, Tensor]]:
        """y of each step that counts, and what its proposals were like."""
        policy: BestOfPolicy = models[POLICY]
        counted = counted_of(batch)
        normal_KO = policy.normal(counted(steps_of(batch).next_NSO))
        share_KPA = policy.propose(normal_KO, counted(batch.facts[NEXT]))
        score_KP = policy.scores(models[TARGET], normal_KO, share_KPA)
        best_K = score_KP.argmax(-1)
        action_KA = policy.bound * share_KPA[torch.arange(len(best_K)), best_K]
        worth_K = least(models, batch, models[TARGET](normal_KO, action_KA), self.subset)
        reward_K, discount_K = self.backed(batch)
        edited_K = (best_K >= policy.spec.proposals).float()
        return reward_K + discount_K * worth_K, {"proposals/gain": gain(score_KP), "proposals/edited": edited_K}

    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        policy: BestOfPolicy = models[POLICY]
        policy.take_scores(models[TARGET])
        return {}
