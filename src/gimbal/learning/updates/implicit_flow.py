"""IDQL: values of the data's better actions, a flow that clones the data, and a choice among its proposals when it acts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal.composition import FORWARD, Composition, Refusal, Verdict
from gimbal.critics.actions import ActionValues
from gimbal.learning.updates.base import POLICY, Loss, Metrics, Models
from gimbal.learning.updates.flow_q import START, TIME, cloning_noises
from gimbal.learning.updates.implicit_q import VALUE, AbstractImplicitQ
from gimbal.learning.updates.off_policy import TARGET, counted_of, means, steps_of
from gimbal.policies.best_of import BestOf, BestOfPolicy
from gimbal.policies.picks import ByExpectile
from gimbal.records import TrainBatch

MEASURED = 32  # observations of a step at which its policy's proposals are scored


@dataclass(frozen=True, kw_only=True)
class ImplicitFlow(AbstractImplicitQ):
    """State values as an expectile over recorded actions, and a flow that clones all of them alike (IDQL, arXiv:2304.10573).

    For each minibatch of steps (o, a, r, o', ended), in this order, w being 1 / their number, b the policy's bound,
    A = min_m Q'_m(o, a) - V(o), x_0 ~ N(0, 1) in each dimension and t uniform in [0, 1):

        value         sum w |expectile - [A < 0]| A^2,   the gradient only of V
        policy        sum w mean_A (v(o, x_t, t) - (a / b - x_0))^2,   x_t = (1 - t) x_0 + t a / b
        critic        sum w sum_m (Q_m(o, a) - y)^2,   y = r + gamma (1 - ended) V(o')

    Q' follows Q by ``tau``. No value reaches the flow: the policy is better than the data only when it acts, by which of its proposals
    it plays (``BestOf``: ``policy.proposals``, ``policy.pick``). It scores them by Q' and V, which it is given before the first step
    and at the end of each. ``proposals/gain`` is by how much the best of them is above their mean, in ``MEASURED`` observations.

    - ``policy.proposals`` = 1: behavior cloning, whatever the values are.
    - ``expectile`` = 1/2: V is the mean of Q' over the data, and Q belongs to the policy that recorded them (SARSA).
    - ``gamma`` = 0: Q is fitted to rewards.

    Published: expectile .7 (locomotion) and .9 (mazes), 64 proposals (128 in mazes), drawn by the expectile's weights while it learns
    online and the best when it is evaluated, gamma .99, tau .005, all rates 3e-4.

    Confidence: verified (the authors' code); ours: a flow in ten steps in place of a diffusion model in five (as in FQL's comparison,
    where it proposes 32), and no moving average of it.
    """

    def effects(self) -> frozenset[str]:
        return frozenset({FORWARD})

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from proposing(self, self.critic, whole)
        policy = whole.run.policy
        if not isinstance(policy, BestOf):
            return
        if policy.edit:
            yield Refusal(
                f"policy.edit is {policy.edit:g}, and ImplicitFlow trains no edits: set policy.edit=0, or begin with expo"
            )
        if isinstance(policy.pick, ByExpectile) and policy.pick.expectile != self.expectile:
            yield Refusal(
                f"policy.pick weighs proposals by the expectile {policy.pick.expectile:g}, and V is that of {self.expectile:g}: set "
                f"policy.pick.expectile={self.expectile:g}"
            )

    def begun(self, models: Models) -> None:
        super().begun(models)
        policy: BestOfPolicy = models[POLICY]
        policy.take_scores(models[TARGET], models[VALUE])  # or the first step would change them without a move

    def noises(self, models: Models, batch: TrainBatch) -> dict[str, Tensor]:
        policy: BestOfPolicy = models[POLICY]
        return cloning_noises(models, batch, policy.actions)

    def imitation(self, models: Models, batch: TrainBatch, above_K: Float[Tensor, " K"]) -> Loss:
        error_K = cloning(models[POLICY], batch)
        weight_K = counted_of(batch)(batch.facts["weight"])
        return Loss(of=(POLICY,), value=(weight_K * error_K).sum(), metrics=means(weight_K, {"flow/loss": error_K}))

    def stepped(self, models: Models, batch: TrainBatch) -> Metrics:
        policy: BestOfPolicy = models[POLICY]
        policy.take_scores(models[TARGET], models[VALUE])
        rows = batch.select(torch.arange(min(MEASURED, batch.shape[0])))
        normal_KO = policy.normal(counted_of(rows)(steps_of(rows).observation_NSO))
        noise_KX = policy.noise(models.random("proposals"), len(normal_KO)).to(normal_KO.device)
        with torch.no_grad():
            score_KP = policy.scores(policy.judge, normal_KO, policy.propose(normal_KO, noise_KX))
        return {"proposals/gain": float(gain(score_KP).mean())}


def cloning(policy: BestOfPolicy, batch: TrainBatch) -> Float[Tensor, " K"]:
    """How far the flow's velocity is from the way to each action that counts."""
    steps, counted = steps_of(batch), counted_of(batch)
    normal_KO, share_KA = policy.normal(counted(steps.observation_NSO)), counted(steps.action_NSA) / policy.bound
    return policy.flow.apart(normal_KO, share_KA, counted(batch.facts[START]), counted(batch.facts[TIME]))


def gain(score_KP: Float[Tensor, "K P"]) -> Float[Tensor, " K"]:
    return score_KP.max(-1).values - score_KP.mean(-1)


def proposing(part: object, critic: ActionValues, whole: Composition) -> Iterator[Verdict]:
    """What an update refuses whose policy plays one of its proposals, scored by a copy of this critic."""
    name, policy = type(part).__name__, whole.run.policy
    if not isinstance(policy, BestOf):
        yield Refusal(
            f"{name} clones the data by a flow whose proposals are scored, and {type(policy).__name__} proposes none: "
            "policy='BestOf(observations=..., actions=..., bound=...)'"
        )
        return
    if critic.blocks:
        yield Refusal(
            f"the policy scores its proposals by a copy of the critic, and its copy has no residual blocks: update.critic.blocks is "
            f"{critic.blocks}; set update.critic.blocks=0"
        )
    for item in (item for item in fields(critic) if item.name != "blocks"):
        own, other = vars(policy)[item.name], vars(critic)[item.name]
        if own != other:
            yield Refusal(
                f"the policy scores its proposals by a copy of the critic, and policy.{item.name} is {own} where "
                f"update.critic.{item.name} is {other}: set both alike"
            )
