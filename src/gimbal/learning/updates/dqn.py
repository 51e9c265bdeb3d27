"""DQN: the values of choices, learned from whatever policy chose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.learning.updates.base import POLICY, Loss, Models, ModelSpec
from gimbal.learning.updates.off_policy import TARGET, AbstractOffPolicy, Explore, means, steps_of
from gimbal.policies.greedy import Greedy, GreedyPolicy
from gimbal.records import TrainBatch


@dataclass(frozen=True, kw_only=True)
class DQN(AbstractOffPolicy):
    """Q learning with a network (DQN, Mnih et al. 2015), its targets by double Q learning (arXiv:1509.06461).

    For each minibatch of steps (o, a, r, o', ended), w being 1 / their number; h is x^2 / 2 up to |x| = 1 and |x| - 1/2 beyond:

        policy        sum w h(Q(o, a) - y),   y = r + gamma (1 - ended) Q'(o', argmax_a Q(o', a))

    Q is the policy: it takes its best choice, and with probability ``explore`` any (``policies.Greedy``). Q' follows it by ``tau``
    after each move.

    - ``double`` off: y = r + gamma (1 - ended) max_a Q'(o', a), DQN as first published.
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: Q' is a copy of Q taken every 10,000 moves, explore 1 to .1 over a million steps. Ours: Q' that follows steadily.

    Confidence: verified.
    """

    double: bool = True
    explore: Explore = Explore(last=0.05, over=10_000)

    def explores(self) -> Explore:
        return self.explore

    def models(self) -> dict[str, ModelSpec]:
        return {
            POLICY: ModelSpec(optimizer=self.optimization.of_policy()),
            TARGET: ModelSpec(follows=POLICY, rate=self.tau),
        }

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if not whole.has(Greedy):
            yield Refusal(
                f"DQN learns the values of choices, and {type(whole.run.policy).__name__} has none: "
                "policy='Greedy(observations=..., actions=...)'"
            )

    def losses(self, models: Models, batch: TrainBatch) -> Iterator[Loss]:
        policy: GreedyPolicy = models[POLICY]
        steps, taken_NS = steps_of(batch), batch.mask_NS
        weight_K = batch.facts["weight"][taken_NS]
        target_K = self._target(models, batch)
        q_K = policy.values(steps.observation_NSO[taken_NS]).gather(-1, steps.action_NSA[taken_NS])[:, 0]
        loss_K = nn.functional.smooth_l1_loss(q_K, target_K, reduction="none")
        yield Loss(
            of=(POLICY,),
            value=(weight_K * loss_K).sum(),
            metrics=means(weight_K, {"loss": loss_K, "q/mean": q_K, "q/target": target_K}),
        )

    @torch.no_grad()
    def _target(self, models: Models, batch: TrainBatch) -> Float[Tensor, " K"]:
        """y of each step that counts."""
        next_KO = steps_of(batch).next_NSO[batch.mask_NS]
        worth_KV = models[TARGET].values(next_KO)
        chooses_KV = models[POLICY].values(next_KO) if self.double else worth_KV
        reward_K, discount_K = self.backed(batch)
        return reward_K + discount_K * worth_KV.gather(-1, chooses_KV.argmax(-1, keepdim=True))[:, 0]
