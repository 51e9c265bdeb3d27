"""A policy that is trained against an attacker who answers faster than it changes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gimbal.environments.contest import Contest


@dataclass(frozen=True, kw_only=True)
class TwoTimescales:
    """Gradient ascent of a policy on its return, and descent of an attacker who takes ``replies`` steps for each of its (the defence of
    arXiv:2305.17342, on tables).

    With d_h(s) how likely state s is before step h, and Q_h the return that follows an action where both go on by their policies:

        mu_h(s) <- project(mu_h(s) - ``rate`` d_h(s) Q_h(s, .)),   ``replies`` times, for the attacker mu
        pi_h(s) <- project(pi_h(s) + ``rate`` d_h(s) Q_h(s, .))    for the policy pi

    project is the nearest distribution. With a worst reply in place of mu, the step of pi is up the gradient of min_mu J(pi, mu), and
    ``Contest.hijacked`` bounds what mu may do.

    - ``replies`` = 1: gradient descent and ascent by turns, which goes round a mixed equilibrium.
    - ``replies`` = 0: mu is exactly the worst reply to each pi.
    - share 0 of ``hijacked``: gradient ascent beside the honest partner.

    In matching pennies, with small steps, the two go round an ellipse, of which pi's half axis is 1 / sqrt(``replies``) of mu's; mu's
    is at most 1/2, so pi stays within about 1 / (2 sqrt(``replies``)) of the equilibrium.

    Confidence: partial; from the card. Ours: the sizes of steps, and the exact gradients on tables.
    """

    rate: float = 0.1
    replies: int = 10

    def __post_init__(self) -> None:
        if not 0 < self.rate < math.inf or self.replies < 0:
            raise ValueError(
                f"TwoTimescales has rate {self.rate}, which is above 0 and finite, and replies {self.replies}, which is 0 or above"
            )

    def policies(
        self, contest: Contest, begin_HSA: Float[np.ndarray, "H S A"]
    ) -> Iterator[tuple[Float[np.ndarray, "H S A"], Float[np.ndarray, "H S B"]]]:
        """The policy and its attacker, again and again, each time before the policy moves. The first attacker acts by chance."""
        actions = contest.reward_SAB.shape[2]
        policy_HSA, attack_HSB = begin_HSA, np.full((*begin_HSA.shape[:2], actions), 1 / actions)
        while True:
            if not self.replies:
                attack_HSB = contest.worst(policy_HSA)[1]
            for _ in range(self.replies):
                _, theirs_HSB = contest.values(policy_HSA, attack_HSB)
                visit_HS1 = contest.visits(policy_HSA, attack_HSB)[..., None]
                attack_HSB = projected(attack_HSB - self.rate * visit_HS1 * theirs_HSB)
            yield policy_HSA, attack_HSB
            own_HSA, _ = contest.values(policy_HSA, attack_HSB)
            visit_HS1 = contest.visits(policy_HSA, attack_HSB)[..., None]
            policy_HSA = projected(policy_HSA + self.rate * visit_HS1 * own_HSA)


def projected(point_XA: Float[np.ndarray, "*X A"]) -> Float[np.ndarray, "*X A"]:
    """The nearest distribution to each row: max(0, x - t), with the t that makes its sum 1."""
    falling_XA = -np.sort(-point_XA, axis=-1)
    over_XA = (falling_XA.cumsum(-1) - 1) / np.arange(1, point_XA.shape[-1] + 1)
    count_X1 = (falling_XA > over_XA).sum(-1, keepdims=True)
    return np.maximum(0.0, point_XA - np.take_along_axis(over_XA, count_X1 - 1, -1))
