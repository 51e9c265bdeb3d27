"""Residual policies: what another run learned, which stays as it is, and a bounded correction of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.clipped import AbstractClippedPolicy
from gimbal.policies.control import (
    DENSITIES,
    AbstractBoundedSpec,
    AbstractRealPolicy,
    output_of,
    read_config,
    read_tensors,
    read_weights,
    relu_mlp,
    saved,
    sizes_of,
)
from gimbal.policies.deterministic import DeterministicPolicy
from gimbal.policies.gaussian import GaussianPolicy
from gimbal.policies.koopman import Koopman, KoopmanModel
from gimbal.policies.one_step import OneStepPolicy
from gimbal.policies.squashed import SquashedGaussianPolicy

# What a base may be, by what its weights are called; nothing else tells the directories apart.
KINDS: Mapping[str, Callable[..., AbstractRealPolicy]] = {
    "Gaussian": partial(GaussianPolicy, log_std=0.0),
    "SquashedGaussian": SquashedGaussianPolicy,
    "Deterministic": DeterministicPolicy,
    "OneStep": OneStepPolicy,
}


def base_in(directory: str, spec: AbstractBoundedSpec) -> dict[str, Any]:
    """The kind and the sizes of the policy saved there, by which ``frozen`` makes it; ValueError where it is none for ``spec``."""
    held = read_config(directory, "policy.base")
    for name in ("observations", "actions"):
        if held.get(name) != vars(spec)[name]:
            raise ValueError(
                f"the policy in {directory} has {name} {held.get(name)}, and in this environment it must be {vars(spec)[name]}: "
                "train one here, as gimbal train bc, and name its directory by policy.base"
            )
    read_tensors(directory)  # a damaged file is of no kind
    for name, kind in KINDS.items():
        try:
            return {"kind": name, **saved(kind, directory, 0).config}
        except ValueError:  # it was saved by another kind
            continue
    raise ValueError(
        f"{directory} holds no policy that can be corrected: policy.base names one of {', '.join(KINDS)}, whole, as runs of bc, "
        "td3_bc, fql and sac save them"
    )


def frozen(base: Mapping[str, Any], seed: int) -> AbstractRealPolicy:
    """A policy of this kind and these sizes, whose weights are still to be read and never move."""
    sizes = {name: value for name, value in base.items() if name != "kind"}
    return KINDS[base["kind"]](**sizes, seed=stable_hash("base", seed) % 2**63).eval().requires_grad_(False)


class ResidualPolicy(AbstractClippedPolicy):
    """mode(o) = clip(a_b + bound ``reach`` tanh(f(o, a_b / bound)), -bound, bound),  a_b = clip(base(o), -bound, bound)

    where base(o) is the mode of a frozen policy, or 0 without one. With a model of what comes next f reads z' = A z + B a_b / bound
    instead, where a_b would lead; z is the lift of o. The last layer of f begins at 0, so that the first mode is the base's. The
    gradient of the mode passes the outer clip as if it were not there: else a correction beyond the bound would never come back.
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        normalize: bool,
        reach: float,
        base: dict[str, Any] | None,
        seed: int,
        foresight: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(bound)
        self.bounded(observations, actions, hidden, bound, normalize)
        self.config |= {"reach": reach, "base": base, "foresight": foresight}
        self.base = None if base is None else frozen(base, seed)
        held: dict[str, Any] = {n: tuple(x) if isinstance(x, list) else x for n, x in (foresight or {}).items()}
        spec = None if foresight is None else Koopman(**held)
        self.foresight = None if spec is None else KoopmanModel(observations, actions, spec, seed)
        read = observations + actions if self.foresight is None else self.foresight.width
        self.correction = relu_mlp([read, *hidden, actions], seed)
        last = self.correction[-1]
        assert isinstance(last, nn.Linear)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.reach = reach

    def mode(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        base_BA = self.of_base(observation_BO)
        moved_BA = base_BA + self.bound * self.share(observation_BO, base_BA)
        return moved_BA + (moved_BA.clamp(-self.bound, self.bound) - moved_BA).detach()

    def share(self, observation_BO: Float[Tensor, "B O"], base_BA: Float[Tensor, "B A"]) -> Float[Tensor, "B A"]:
        """The correction in units of the bound."""
        normal_BO, share_BA = self.normal(observation_BO), base_BA / self.bound
        if self.foresight is None:
            x_BI = torch.cat([normal_BO, share_BA], dim=-1)
        else:
            x_BI = self.foresight.step(self.foresight.lift(normal_BO), share_BA)
        return self.reach * output_of(self.correction, x_BI).tanh()

    @torch.no_grad()
    def of_base(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B A"]:
        """What the base does, without noise. It sees observations as it did when it was trained."""
        still_B = observation_BO.new_zeros(len(observation_BO))
        still_BA = still_B[:, None].expand(-1, self.actions)
        if self.base is None:
            return still_BA.float()
        return self.base.draw(observation_BO, still_BA, still_B)[0].clamp(-self.bound, self.bound)


@dataclass(frozen=True, kw_only=True)
class Residual(AbstractBoundedSpec):
    """Corrects a frozen policy by at most ``reach`` of the bound in each of ``actions`` continuous actions in [-``bound``, ``bound``],
    on ``observations`` inputs; or the policy saved in the directory ``model``.

    ``base`` is the directory of a policy that a run of bc, td3_bc, cql, fql, sac or td3 saved; without one 0 is corrected.
    ``normalize``: the correction sees observations in units of their own spread; the base sees them as it did. ``foresight``: it sees
    where the base's action would lead, by a model that TD3 learns beside it (KORR, arXiv:2509.12562), in place of both.

    - ``reach`` near 0: the base.
    - no ``base``, ``reach`` = 1: ``Deterministic``, which begins at 0.
    """

    family: ClassVar[Family] = DENSITIES

    base: str = ""
    reach: float = 1.0
    foresight: Koopman | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.reach <= 2:
            raise ValueError(
                f"policy.reach is {self.reach}; it is the largest correction as a share of the bound, above 0 and at most 2, which "
                "leads from any action to any other"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if not self.base and not self.model:
            yield Advice(
                "policy.base names no policy, so that the action 0 is corrected: policy.base=runs/RUN/model, of a run of bc or td3_bc",
                always=True,
            )

    def load(self, seed: int = 0) -> ResidualPolicy:
        if self.model:
            return saved(ResidualPolicy, self.model, seed)
        policy = ResidualPolicy(
            observations=self.observations,
            actions=self.actions,
            hidden=list(self.hidden),
            bound=self.bound,
            normalize=self.normalize,
            reach=self.reach,
            base=base_in(self.base, self) if self.base else None,
            seed=seed,
            foresight=None if self.foresight is None else sizes_of(self.foresight),
        )
        if policy.base is not None:
            read_weights(policy.base, self.base)
        return policy.eval()
