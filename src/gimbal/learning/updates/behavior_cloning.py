"""Behavior cloning: imitates the data's actions, ignoring their outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.dataflow.replay.transitions import Transitions
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.off_policy import AbstractOnDecisions, counted_of, means, steps_of
from gimbal.policies.control import AbstractControlPolicy
from gimbal.policies.deterministic import DeterministicPolicy
from gimbal.policies.greedy import Greedy
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class BehaviorCloning(AbstractOnDecisions):
    """Makes recorded actions likely (Pomerleau 1991). For each minibatch of steps (o, a), w being 1 / their number:

        policy        - sum w log pi(a|o);   for a deterministic policy with bound b,   sum w mean_A ((pi(o) - a) / b)^2

    On a policy's own steps with goals that their episodes reached (``Transitions(hindsight=Hindsight(goals=1000))``) it is
    goal-conditioned supervised learning (GCSL, arXiv:1912.06088), which reads no reward. Act2Goal (arXiv:2512.23541) practises so
    without rewards too; its world model, its near and far frames and its low-rank weights are not built.

    - Equally many steps of each action in every observation: a deterministic policy takes their mean.

    Confidence: verified.
    """

    def models(self) -> dict[str, ModelSpec]:
        return {POLICY: ModelSpec(optimizer=self.optimization.of_policy())}

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(Greedy):
            yield Refusal(
                "BehaviorCloning makes recorded choices likelier, but Greedy takes its largest value: set "
                "policy='Categorical(observations=..., actions=...)'"
            )
        if any(store.hindsight is None and store.prior is None for store in whole.all(Transitions)):
            yield Advice(
                "BehaviorCloning on the policy's own steps imitates what it does already: store.hindsight='Hindsight(goals=1000)' in "
                "an environment with goals, or tasks='Minari(dataset=...)' for recorded steps"
            )

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy, steps, counted = models.policy, steps_of(batch), counted_of(batch)
        assert isinstance(policy, AbstractControlPolicy)
        weight_K, seen_KO = counted(batch.facts["weight"]), counted(steps.observation_NSO)
        action_KA = counted(steps.action_NSA)
        if isinstance(policy, DeterministicPolicy):
            loss_K = ((policy.mode(seen_KO) - action_KA) / policy.bound).square().mean(-1)
        else:
            loss_K = -policy.assess(seen_KO, action_KA, 1.0)[0]
        yield Loss(of=(POLICY,), value=(weight_K * loss_K).sum(), metrics=means(weight_K, {"loss": loss_K}))
