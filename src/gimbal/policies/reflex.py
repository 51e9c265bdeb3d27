"""Policies that decide every few steps, and a reflex that looks at every step and steps in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from gimbal.composition import TELLS_RISK, Composition, Refusal, Verdict
from gimbal.ops import philox, stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import DENSITIES, AbstractBoundedSpec, AbstractRealPolicy, config_of, read_weights
from gimbal.policies.ensemble import ActionValueNetwork
from gimbal.policies.squashed import SquashedGaussianPolicy

FEWEST = 2  # of what a reflex may do


class ReflexivePolicy(AbstractRealPolicy):
    """p = a ~ pi(.|o) where a decision is due, else the last action again (``Held`` shows both). What is done is

        e = p where risk(o, p) <= ``tolerated``, else the x_j of the least risk(o, x_j)

    of ``escapes`` actions x_j, drawn once, with the policy. risk is the largest of the critic's members. An action is recorded as
    (p, e); its log-probability is that of the decision, and 0 where none is due. The critic of risk (``judge``) is a copy that the
    update brings: no gradient of the policy reaches it.
    """

    provides: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, spec: Reflexive, sizes: dict[str, Any], seed: int) -> None:
        super().__init__()
        self.spec = spec
        observations, actions, hidden, bound = (sizes[name] for name in ("observations", "actions", "hidden", "bound"))
        self.bounded(observations, actions, hidden, bound, sizes["normalize"])
        self.config |= {name: sizes[name] for name in ("members", "escapes")}
        self.task = SquashedGaussianPolicy(observations, actions, hidden, bound, seed)
        first, inputs = stable_hash("risk", seed) % 2**63, observations + actions
        self.judge = ActionValueNetwork(inputs, tuple(hidden), sizes["members"], bound, first, False)
        self.judge.requires_grad_(False)
        drawn_PA = philox("escapes", seed).uniform(-bound, bound, (sizes["escapes"], actions))
        self.register_buffer("escape_PA", torch.from_numpy(drawn_PA.astype(np.float32)))

    def take_risk(self, critic: nn.Module) -> None:
        """Let a copy of this critic judge from now on."""
        self.judge.load_state_dict(critic.state_dict())

    def due(self, observation_KO: Float[Tensor, "K O"]) -> Bool[Tensor, " K"]:
        """Where a decision is due."""
        return observation_KO[:, -1] == 0

    def held(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """The last action, which holds until a decision is due."""
        return observation_KO[:, -1 - self.actions : -1]

    def deciding(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K O"]:
        """The same observations, as if a decision were due in each."""
        return torch.cat([observation_KO[:, :-1], torch.zeros_like(observation_KO[:, -1:])], -1)

    def halves(self, x_XA: Shaped[Tensor, "*X D"]) -> tuple[Shaped[Tensor, "*X A"], Shaped[Tensor, "*X A"]]:
        """Of recorded actions, what was decided and what was done."""
        return x_XA[..., : self.actions], x_XA[..., self.actions :]

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B D"], Float[Tensor, " B"]]:
        decided_BA, logprob_B = self._task(
            observation_BO, self.task.draw(self.normal(observation_BO), noise_BA, temperature_B)
        )
        return torch.cat([decided_BA, self.reflex(observation_BO, decided_BA)], -1), logprob_B

    def done(self, observation_BO: Float[Tensor, "B O"], action_BA: Shaped[Tensor, "B D"]) -> Shaped[Tensor, "B A"]:
        return self.halves(action_BA)[1]

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K D"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        found = self.task.assess(self.normal(observation_KO), self.halves(action_KA)[0], temperature)
        return torch.where(self.due(observation_KO), found[0], 0), found[1]

    def sample(
        self, observation_KO: Float[Tensor, "K O"], noise_KA: Float[Tensor, "K A"]
    ) -> tuple[Float[Tensor, "K A"], Float[Tensor, " K"]]:
        """What the task does, and its log-probabilities, with gradient through the decisions."""
        return self._task(observation_KO, self.task.sample(self.normal(observation_KO), noise_KA))

    def _task(self, observation_KO: Tensor, decision: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """The decisions where one is due, else what is held."""
        due_K = self.due(observation_KO)
        action_KA = torch.where(due_K[:, None], decision[0], self.held(observation_KO).to(decision[0]))
        return action_KA, torch.where(due_K, decision[1], 0)

    def risk(self, observation_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"]) -> Float[Tensor, " K"]:
        held = next(self.judge.parameters())
        risk_KM = self.judge(self.normal(observation_KO).to(held), action_KA.to(held)).sigmoid()
        return risk_KM.max(-1).values.float()

    @torch.no_grad()
    def reflex(self, observation_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"]) -> Float[Tensor, "K A"]:
        """What is done in place of these actions."""
        acts_K = self.risk(observation_KO, action_KA) > self.spec.tolerated
        if not self.spec.within:
            acts_K &= self.due(observation_KO)
        if not bool(acts_K.any()):
            return action_KA
        escape_PA: Any = self.escape_PA
        seen_QO = observation_KO[acts_K].repeat_interleave(len(escape_PA), 0)
        risk_KP = self.risk(seen_QO, escape_PA.repeat(int(acts_K.sum()), 1)).reshape(-1, len(escape_PA))
        done_KA = action_KA.clone()
        done_KA[acts_K] = escape_PA[risk_KP.argmin(-1)].to(done_KA)
        return done_KA


@dataclass(frozen=True, kw_only=True)
class Reflexive(AbstractBoundedSpec):
    """Decides every few steps by a squashed Gaussian, and lets a reflex look at every step (Bresa, arXiv:2503.21989): on
    ``observations`` inputs, those of an environment in ``Held``, with ``actions`` continuous actions in [-``bound``, ``bound``]; or the
    policy saved in the directory ``model``.

    Where the risk of what is to be done is above ``tolerated``, the reflex does the least risky of ``escapes`` actions in its place,
    which then holds until the next decision, or until the reflex acts again. With ``within`` off it looks at decisions alone, so at the
    task's own rate. Both, and ``tolerated``, may be set anew where a trained policy is evaluated.

    - ``tolerated`` = 1: no reflex.
    - decisions at each step (``Held.every`` = 1): Recovery RL (arXiv:2010.15920).

    Confidence: partial; from the card of the paper; ours: the least risky of fixed actions in place of a second policy that learns to
    lower risk, no impedance controller, and no hysteresis, for which a policy would need to know what it did one step before.
    """

    family: ClassVar[Family] = DENSITIES

    members: int = 2
    tolerated: float = 0.2
    within: bool = True
    escapes: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.tolerated <= 1:
            raise ValueError(
                f"policy.tolerated is {self.tolerated}; it is a risk, from 0 to 1, at which nothing is stopped"
            )
        if self.members < 1 or self.escapes < FEWEST:
            raise ValueError(
                f"Reflexive has members {self.members} (at least 1) and escapes {self.escapes}, the actions of a reflex (at least 2)"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if not whole.doing(TELLS_RISK):
            yield Refusal(
                f"Reflexive has a reflex that reads a learned risk, and {type(whole.run.learns).__name__} learns none: begin with "
                "bresa, or set policy='SquashedGaussian(observations=..., actions=...)'"
            )

    def load(self, seed: int = 0) -> ReflexivePolicy:
        own = {
            name: vars(self)[name] for name in ("observations", "actions", "bound", "normalize", "members", "escapes")
        }
        own |= {"hidden": list(self.hidden)}
        sizes = config_of(self, own, "bresa") if self.model else own
        policy = ReflexivePolicy(self, sizes, seed)
        if self.model:
            read_weights(policy, self.model)
        return policy.eval()
