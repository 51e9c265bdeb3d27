"""How far a policy moves when the reward does: greedy policies jump where actions tie, soft ones follow (arXiv:2507.20150).

With g the gap between the best and the second-best action value of a state, a change of all rewards by less than (1 - gamma) g / 2
leaves the greedy action there; where g = 0 any change may turn it. Of the soft policy softmax(Q / alpha), with Q its own soft values,
the L1 distance is at most |Q - Q'| / alpha, and |Q - Q'| at most |R - R'| / (1 - gamma), both in the largest entry.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Cliff:
    """``distance``: mean total variation of the two policies. ``slope``: ``distance`` over the largest change of reward, 0 if there
    is none. ``near``: share of states whose gap is below twice the change in values that such a change may cause. ``bound``: upper
    bound on ``distance``.
    """

    distance: float
    slope: float
    near: float
    bound: float


def action_values(
    transition_SAS: Float[Tensor, "S A S"], reward_SA: Float[Tensor, "S A"], gamma: float, alpha: float = 0.0
) -> Float[Tensor, "S A"]:
    """Optimal Q in a known environment, to 1e-12: of the discounted return, plus alpha times the entropy where alpha is above 0."""
    if not 0 <= gamma < 1 or alpha < 0:
        raise ValueError(f"values are of gamma in [0, 1) and alpha of 0 or above, not {gamma} and {alpha}")
    value_SA, reward_SA = torch.zeros_like(reward_SA, dtype=torch.float64), reward_SA.double()
    for _ in range(100_000):
        best_S = value_SA.amax(1) if alpha == 0 else alpha * (value_SA / alpha).logsumexp(1)
        fresh_SA = reward_SA + gamma * transition_SAS.double() @ best_S
        if float((fresh_SA - value_SA).abs().max()) <= 1e-12:
            return fresh_SA
        value_SA = fresh_SA
    raise ValueError(f"the values have not settled; gamma {gamma} is too close to 1")


def policy_of(value_SA: Float[Tensor, "S A"], alpha: float = 0.0) -> Float[Tensor, "S A"]:
    """softmax(Q / alpha); at 0 all on the best action, the first of several."""
    if alpha > 0:
        return (value_SA.double() / alpha).softmax(-1)
    return torch.nn.functional.one_hot(value_SA.argmax(-1), value_SA.shape[-1]).double()


def gaps(value_SA: Float[Tensor, "S A"]) -> Float[Tensor, " S"]:
    """Best minus second-best value; infinite where there is one action."""
    if value_SA.shape[-1] == 1:
        return torch.full_like(value_SA[..., 0], torch.inf)
    best_S2 = value_SA.topk(2, dim=-1).values
    return best_S2[..., 0] - best_S2[..., 1]


def total_variation(first_SA: Float[Tensor, "S A"], second_SA: Float[Tensor, "S A"]) -> Float[Tensor, " S"]:
    return (first_SA - second_SA).abs().sum(-1) / 2


def cliff(
    transition_SAS: Float[Tensor, "S A S"],
    reward_SA: Float[Tensor, "S A"],
    other_SA: Float[Tensor, "S A"],
    *,
    gamma: float,
    alpha: float = 0.0,
) -> Cliff:
    """The optimal policies under two rewards, compared. ``bound`` is 1, or what alpha and gamma promise."""
    first_SA, second_SA = (action_values(transition_SAS, r, gamma, alpha) for r in (reward_SA, other_SA))
    distance = float(total_variation(policy_of(first_SA, alpha), policy_of(second_SA, alpha)).mean())
    change = float((reward_SA.double() - other_SA.double()).abs().max())
    near = float((gaps(first_SA) < 2 * change / (1 - gamma)).double().mean())
    bound = min(1.0, change / (2 * alpha * (1 - gamma))) if alpha > 0 else 1.0
    return Cliff(distance, distance / change if change else 0.0, near, bound)
