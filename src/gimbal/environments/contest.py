"""Two who act at once in a problem with few states, one of whom may be taken over by an attacker; exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float

DRIVE, CHANGE = 6, 0.5  # steps of the drive, and what a change of lane costs


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Transition probabilities, mean rewards of the first player, and a horizon. Episodes begin in state 0; a step whose row is 0 ends
    them, and so does the horizon. The first player has A actions, the other B."""

    transition_SABS: Float[np.ndarray, "S A B S"]
    reward_SAB: Float[np.ndarray, "S A B"]
    horizon: int

    def hijacked(self, partner_SB: Float[np.ndarray, "S B"], share: float) -> Contest:
        """The contest in which the other player is ``partner``, and an attacker takes its place in a ``share`` of the steps
        (arXiv:2305.17342): its actions are those of (1 - share) partner + share attacker.

        - ``share`` = 0: what the attacker does changes nothing. ``share`` = 1: the contest itself.

        The states that are met at step h are those without an attacker, but for at most 1 - (1 - share)^h of them (total variation):
        a small share is what makes an attack hard to see.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share is {share}; it is the part of the steps that an attacker takes over, from 0 to 1")
        honest_SAS = np.einsum("sb,sabt->sat", partner_SB, self.transition_SABS)
        honest_SA = np.einsum("sb,sab->sa", partner_SB, self.reward_SAB)
        return replace(
            self,
            transition_SABS=(1 - share) * honest_SAS[:, :, None] + share * self.transition_SABS,
            reward_SAB=(1 - share) * honest_SA[:, :, None] + share * self.reward_SAB,
        )

    def values(
        self, policy_HSA: Float[np.ndarray, "H S A"], attack_HSB: Float[np.ndarray, "H S B"]
    ) -> tuple[Float[np.ndarray, "H S A"], Float[np.ndarray, "H S B"]]:
        """What each action is worth to the first player, of either player, where both go on by their policies."""
        own_HSA, theirs_HSB, value_S = (
            np.zeros_like(policy_HSA),
            np.zeros_like(attack_HSB),
            np.zeros(len(self.reward_SAB)),
        )
        for h in reversed(range(self.horizon)):
            q_SAB = self.reward_SAB + self.transition_SABS @ value_S
            own_HSA[h] = np.einsum("sab,sb->sa", q_SAB, attack_HSB[h])
            theirs_HSB[h] = np.einsum("sab,sa->sb", q_SAB, policy_HSA[h])
            value_S = (policy_HSA[h] * own_HSA[h]).sum(-1)
        return own_HSA, theirs_HSB

    def worst(self, policy_HSA: Float[np.ndarray, "H S A"]) -> tuple[float, Float[np.ndarray, "H S B"]]:
        """The first player's return against the reply that is worst for it, and that reply."""
        attack_HSB = np.zeros((self.horizon, len(self.reward_SAB), self.reward_SAB.shape[2]))
        value_S = np.zeros(len(self.reward_SAB))
        for h in reversed(range(self.horizon)):
            q_SB = np.einsum("sab,sa->sb", self.reward_SAB + self.transition_SABS @ value_S, policy_HSA[h])
            attack_HSB[h], value_S = np.eye(q_SB.shape[1])[q_SB.argmin(1)], q_SB.min(1)
        return float(value_S[0]), attack_HSB

    def visits(
        self, policy_HSA: Float[np.ndarray, "H S A"], attack_HSB: Float[np.ndarray, "H S B"]
    ) -> Float[np.ndarray, "H S"]:
        """How likely each state is before each step; what rows lack to 1 has ended."""
        visit_HS = np.zeros((self.horizon, len(self.reward_SAB)))
        visit_HS[0, 0] = 1.0
        for h in range(self.horizon - 1):
            together_SAB = policy_HSA[h][:, :, None] * attack_HSB[h][:, None]
            visit_HS[h + 1] = np.einsum("s,sab,sabt->t", visit_HS[h], together_SAB, self.transition_SABS)
        return visit_HS


def lanes() -> Contest:
    """One drives in one of two lanes, the other blocks one, both chosen at once in each of six steps. Who is blocked is at the end; who
    is not earns 1 in lane 0 and 2 in lane 1, and .5 less where that is another lane than before. The state is the driver's lane."""
    transition_SABS, reward_SAB = np.zeros((2, 2, 2, 2)), np.zeros((2, 2, 2))
    for state in range(2):
        for lane in range(2):
            reward_SAB[state, lane, 1 - lane] = 1.0 + lane - CHANGE * (lane != state)
            transition_SABS[state, lane, 1 - lane, lane] = 1.0
    return Contest(transition_SABS=transition_SABS, reward_SAB=reward_SAB, horizon=DRIVE)


def pennies() -> Contest:
    """Matching pennies, once: 1 where both show the same side, -1 else. Its value is 0, of showing either by chance."""
    return Contest(transition_SABS=np.zeros((1, 2, 2, 1)), reward_SAB=2 * np.eye(2)[None] - 1, horizon=1)
