"""Several frozen policies, each of which is asked in the variant of an environment that it was trained in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NoReturn

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from gimbal.composition import Advice, Composition, Refusal, Verdict
from gimbal.policies.base import AbstractPolicy, AbstractPolicySpec, Family
from gimbal.policies.control import DENSITIES, MEAN, AbstractRealPolicy, read_config, read_weights
from gimbal.policies.deterministic import Deterministic
from gimbal.policies.frozen_base import base_in, frozen
from gimbal.policies.gaussian import GaussianPolicy


class TeacherPolicies(AbstractRealPolicy):
    """Of each observation the action of one policy: that whose ``value`` is nearest to the observation's number ``tells``. It sees the
    first numbers of the observation, as many as it was trained on. None of them moves."""

    provides: ClassVar[frozenset[str]] = frozenset({MEAN})

    def __init__(
        self, policies: list[AbstractRealPolicy], values: list[float], tells: int, observations: int, actions: int
    ) -> None:
        super().__init__()
        self.config = {"observations": observations, "actions": actions, "tells": tells, "values": values}
        self.tells = tells
        self.policies = nn.ModuleList(policies)
        self.register_buffer("value_M", torch.tensor(values))
        self.requires_grad_(False)

    def reads(self, other: AbstractPolicy) -> str:
        same = isinstance(other, AbstractRealPolicy) and other.interface == self.interface
        return "" if same else f"teachers take {self.interface}, and the policy is a {type(other).__name__} of others"

    def mean_action(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        still_KA = observation_KO.new_zeros(len(observation_KO), self.actions)
        return self.draw(observation_KO, still_KA, still_KA[:, 0])[0]

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        def drawn(policy: AbstractRealPolicy, seen: Tensor, noise: Tensor, warm: Tensor) -> tuple[Tensor, Tensor]:
            return policy.draw(seen, noise, warm)

        return self._routed(observation_BO, drawn, noise_BA, temperature_B)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        def assessed(policy: AbstractRealPolicy, seen: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
            return policy.assess(seen, action, temperature)

        return self._routed(observation_KO, assessed, action_KA)

    @torch.no_grad()
    def _routed(
        self, seen_KO: Tensor, ask: Callable[..., tuple[Tensor, Tensor]], *given: Tensor
    ) -> tuple[Tensor, Tensor]:
        """What each row's own policy answers of its rows, in their order."""
        own_K = (seen_KO[:, self.tells, None] - self.get_buffer("value_M")).abs().argmin(-1)
        order_K, parts = own_K.argsort(stable=True), []
        for number in own_K.unique().tolist():
            policy, row_M = self.policies[number], (own_K == number).nonzero()[:, 0]
            assert isinstance(policy, AbstractRealPolicy)
            known_MO = seen_KO[row_M, : policy.config["observations"]]
            parts.append(ask(policy, known_MO, *(x[row_M] for x in given)))
        back_K = order_K.argsort()
        one, other = (torch.cat(x)[back_K] for x in zip(*parts, strict=True))
        return one, other


@dataclass(frozen=True, kw_only=True)
class Teachers(AbstractPolicySpec):
    """Frozen policies as one reference: each state asks the policy of the variant that it is in.

    ``teachers`` are directories that runs of pendulum, sac, td3 and the like saved, each with the value that the observation's number
    ``tells`` (from 0) has in its variant; that nearest to the present one is asked. A teacher sees the first numbers of the
    observation, as many as it was trained on: at least all that come before the one that tells the variants apart.

    - one teacher: that policy, in all states.
    """

    family: ClassVar[Family] = DENSITIES

    observations: int
    actions: int
    teachers: Mapping[str, float] = field(default_factory=dict)
    tells: int = -1

    def __post_init__(self) -> None:
        if not -self.observations <= self.tells < self.observations:
            raise ValueError(
                f"Teachers has tells={self.tells}, the place of a number among {self.observations} observations: 0 to "
                f"{self.observations - 1}, or from the end -1 to -{self.observations}"
            )
        if len(set(self.teachers.values())) < len(self.teachers):
            raise ValueError(
                f"Teachers has {dict(self.teachers)}: two of them have one value, so that only the first would be asked; give each the "
                "number that its own variant shows"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if whole.run.policy is self:
            yield Refusal("Teachers are asked and not trained: set reference=Teachers(...), and policy='Gaussian(...)'")
        if not self.teachers:
            yield Advice(
                "reference.teachers names no policies, so that one which learned nothing teaches: train one in each variant, and name "
                "their directories with what each is told, as reference.teachers=\"{'runs/light/model':0.5,'runs/heavy/model':2}\"",
                always=True,
            )

    def load(self, seed: int = 0) -> TeacherPolicies:
        found: list[AbstractRealPolicy] = [self._loaded(place, seed) for place in self.teachers]
        if not found:
            found = [GaussianPolicy(self.observations, self.actions, [], 0.0, seed)]
        values = list(self.teachers.values()) or [0.0]
        return TeacherPolicies(found, values, self.tells, self.observations, self.actions).eval()

    def _loaded(self, place: str, seed: int) -> AbstractRealPolicy:
        held = read_config(place, "a name in reference.teachers")
        observations, actions = held.get("observations", 0), held.get("actions", 0)
        if actions != self.actions or not 0 < observations <= self.observations:
            raise ValueError(
                f"the teacher in {place} has {observations} observations and {actions} actions, and the student {self.observations} "
                f"and {self.actions}: a teacher sees the first observations of the student's, and does as many actions"
            )
        if observations < (before := self.tells % self.observations):
            raise ValueError(
                f"the teacher in {place} has {observations} observations, and the student {before} before the one that tells the "
                f"variants apart (tells={self.tells}): a teacher sees all of these, so this one was trained elsewhere"
            )
        policy = frozen(base_in(place, Deterministic(observations=observations, actions=actions)), seed)
        read_weights(policy, place)
        return policy

    def at(self, directory: Path) -> NoReturn:
        raise AssertionError("teachers are never saved")
