"""Policies that draft what they will observe, refine it by a few denoising steps, and play the first action of the best plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import Composition, Verdict
from gimbal.ops import philox, stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import (
    NO_DENSITY,
    AbstractBoundedSpec,
    config_of,
    output_of,
    read_weights,
    relu_mlp,
    without_density,
)
from gimbal.policies.implicit import AbstractImplicitPolicy
from gimbal.policies.normalizer import Normalizer

LEAST_BETA, MOST_BETA = 0.1, 20.0  # rates at which a plan becomes noise, at the chain's beginning and at its end


class DraftedPlanPolicy(AbstractImplicitPolicy):
    """a_p = bound clip(I(o, x_p1 - o), -1, 1) of P plans x_p of H observations, of which the one of the largest C(o, a_p) is played.

    A plan is drafted step after step, (x_{h+1}, R_{h+1}) = (x_h, R_h) + G(x_h, R_h) from x_0 = o and the return R_0 = V(o) that is
    aimed at, or begins as noise. Then it is denoised, for k = ``refine``, ..., 1, with beta_k = 1 - A_k / A_{k-1}:

        x <- (x - beta_k e(x, o, R_0, k) / sqrt(1 - A_k)) / sqrt(1 - beta_k) + sqrt(beta_k (1 - A_{k-1}) / (1 - A_k)) z,   z ~ N(0, 1)

    A_k = exp(- B(k / K)) over a ``chain`` of K steps, B(s) = .1 s + 9.95 s^2: of many steps beta_k rises linearly, from .1 / K to
    20 / K. Observations are in units of their spread. z counts sqrt(T) times. At a temperature T of 0 it is the same in every state
    and counts once: without it all plans would be one, and nothing chosen.
    """

    kept_K: Tensor

    def __init__(self, spec: DraftedPlan, sizes: dict[str, Any], seed: int) -> None:
        super().__init__()
        self.spec = spec
        seen, actions, hidden = (sizes[name] for name in ("observations", "actions", "hidden"))
        self.bounded(seen, actions, hidden, sizes["bound"], sizes["normalize"])
        self.config |= {name: sizes[name] for name in ("horizon", "chain")}
        self.horizon, self.chain = sizes["horizon"], sizes["chain"]
        width = self.horizon * seen

        def net(name: str, inputs: int, outputs: int) -> nn.Sequential:
            return relu_mlp([inputs, *hidden, outputs], stable_hash("drafted plan", name, seed) % 2**63)

        self.drafter = net("drafter", seen + 1, seen + 1)
        self.denoiser = net("denoiser", width + seen + 2, width)
        self.between, self.aim, self.judge = (
            net("between", 2 * seen, actions),
            net("aim", seen, 1),
            net("judge", seen + actions, 1),
        )
        self.changes, self.returns = Normalizer(seen), Normalizer(1)  # whose spreads are units
        share_K = torch.arange(1, self.chain + 1) / self.chain
        lost_K = LEAST_BETA * share_K + (MOST_BETA - LEAST_BETA) / 2 * share_K**2
        # A_k, what k steps leave of a plan's variance.
        self.register_buffer("kept_K", (-lost_K).exp(), persistent=False)

    @cached_property
    def always_PX(self) -> Float[Tensor, "P X"]:
        """The noise of each plan at a temperature of 0."""
        candidates = self.spec.candidates
        return self.noise(philox("drafted plan", "always"), 1).reshape(candidates, -1)

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S X"]:
        """Of every denoising step of every plan, and of where plans begin without a draft."""
        count = self.spec.candidates * self.horizon * self.config["observations"] * max(1, self.spec.refine)
        return torch.from_numpy(generator.standard_normal((steps, count), dtype=np.float32))

    def drafted(self, normal_KO: Float[Tensor, "K O"], return_K1: Float[Tensor, "K 1"]) -> Float[Tensor, "K D"]:
        found, at_KI = [], torch.cat([normal_KO, return_K1], -1)
        for _ in range(self.horizon):
            at_KI = at_KI + output_of(self.drafter, at_KI)
            found.append(at_KI[:, :-1])
        return torch.cat(found, -1)

    def noise_in(
        self,
        plan_KD: Float[Tensor, "K D"],
        normal_KO: Float[Tensor, "K O"],
        return_K1: Float[Tensor, "K 1"],
        step_K1: Float[Tensor, "K 1"],
    ) -> Float[Tensor, "K D"]:
        """e: the noise that is expected in a plan after so many of the chain's steps."""
        return output_of(self.denoiser, torch.cat([plan_KD, normal_KO, return_K1, step_K1 / self.chain], -1))

    def denoised(
        self,
        plan_KD: Float[Tensor, "K D"],
        normal_KO: Float[Tensor, "K O"],
        return_K1: Float[Tensor, "K 1"],
        noise_KSD: Float[Tensor, "K S D"],
    ) -> Float[Tensor, "K D"]:
        """After the last ``refine`` steps of the chain; the first noise of a plan is not read."""
        kept_K = [1.0, *self.kept_K.tolist()]
        for step in range(self.spec.refine, 0, -1):
            kept, before = kept_K[step], kept_K[step - 1]
            beta = 1 - kept / before
            expected_KD = self.noise_in(plan_KD, normal_KO, return_K1, torch.full_like(return_K1, step))
            plan_KD = (plan_KD - beta / (1 - kept) ** 0.5 * expected_KD) / (1 - beta) ** 0.5
            plan_KD = plan_KD + (beta * (1 - before) / (1 - kept)) ** 0.5 * noise_KSD[:, step - 1]
        return plan_KD

    def inverse(self, normal_KO: Float[Tensor, "K O"], next_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """The action that leads from one observation to the other, in units of the bound."""
        return output_of(self.between, torch.cat([normal_KO, self.changes(next_KO - normal_KO)], -1))

    def propose(
        self, observation_KO: Float[Tensor, "K O"], noise_KX: Float[Tensor, "K X"], temperature_K: Float[Tensor, " K"]
    ) -> tuple[Float[Tensor, "K P A"], Float[Tensor, "K P"]]:
        """The first actions of plans, in units of the bound, and their scores."""
        spec, count = self.spec, len(observation_KO)
        seen_QO = self.normal(observation_KO).float().repeat_interleave(spec.candidates, 0)
        aimed_Q1 = output_of(self.aim, seen_QO)
        noise_QSD = noise_KX.reshape(len(seen_QO), max(1, spec.refine), -1).float()
        warm_Q11 = temperature_K.float().sqrt().repeat_interleave(spec.candidates)[:, None, None]
        always_PSD = self.always_PX.to(noise_QSD.device).reshape(spec.candidates, *noise_QSD.shape[1:])
        noise_QSD = torch.where(warm_Q11 > 0, noise_QSD, always_PSD.repeat(count, 1, 1))
        plan_QD = self.drafted(seen_QO, aimed_Q1) if spec.draft else noise_QSD[:, 0]
        plan_QD = self.denoised(plan_QD, seen_QO, aimed_Q1, noise_QSD * warm_Q11.where(warm_Q11 > 0, 1))
        share_QA = self.inverse(seen_QO, plan_QD[:, : seen_QO.shape[1]]).clamp(-1, 1)
        score_Q = output_of(self.judge, torch.cat([seen_QO, share_QA], -1))[:, 0]
        return share_QA.reshape(count, spec.candidates, -1), score_Q.reshape(count, -1)

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B X"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        share_BPA, score_BP = self.propose(observation_BO, noise_BA, temperature_B)
        action_BA = self.bound * share_BPA[torch.arange(len(share_BPA)), score_BP.argmax(-1)]
        return self.told(observation_BO, action_BA, temperature_B)

    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """The first action of the draft."""
        seen_KO = self.normal(observation_KO).float()
        plan_KD = self.drafted(seen_KO, output_of(self.aim, seen_KO))
        return self.bound * self.inverse(seen_KO, plan_KD[:, : seen_KO.shape[1]]).clamp(-1, 1)


@dataclass(frozen=True, kw_only=True)
class DraftedPlan(AbstractBoundedSpec):
    """Plans ``horizon`` observations ahead: a draft, made step after step, of which the last ``refine`` steps of a denoising chain make
    a better one; on ``observations`` inputs with ``actions`` continuous actions in [-``bound``, ``bound``], or with the weights saved
    in the directory ``model`` (Trajectory Diffuser, arXiv:2407.16142).

    ``candidates`` plans are made, and the first action of the one that promises most is played. ``chain`` is how many steps lead from
    noise to plans. ``refine``, ``draft`` and ``candidates`` may differ where a trained policy is evaluated.

    - ``refine`` = 0: the draft alone, and one candidate is as good as many.
    - ``draft`` false, ``refine`` = ``chain``: plans from noise (Decision Diffuser), ``chain`` passes of the network an action.
    """

    family: ClassVar[Family] = NO_DENSITY

    normalize: bool = True
    horizon: int = 8
    chain: int = 100
    refine: int = 5
    draft: bool = True
    candidates: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("horizon", "chain", "candidates"):
            if vars(self)[name] < 1:
                raise ValueError(f"DraftedPlan.{name} is {vars(self)[name]}; it is at least 1")
        if not 0 <= self.refine <= self.chain:
            raise ValueError(
                f"DraftedPlan.refine is {self.refine}; it is how many of the chain's last steps are taken, from 0 to chain, "
                f"{self.chain}"
            )
        if not self.draft and self.refine < self.chain:
            raise ValueError(
                f"a plan that begins as noise takes all {self.chain} steps of the chain, and DraftedPlan.refine is {self.refine}: set "
                f"refine={self.chain}, or draft=true"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield from without_density(self, whole)

    def load(self, seed: int = 0) -> DraftedPlanPolicy:
        names = ("observations", "actions", "bound", "normalize", "horizon", "chain")
        own = {name: vars(self)[name] for name in names} | {"hidden": list(self.hidden)}
        sizes = config_of(self, own, "trajectory_diffuser") if self.model else own
        if sizes["chain"] != self.chain:
            raise ValueError(
                f"{self.model} was saved with a chain of {sizes['chain']} steps, and policy.chain is {self.chain}: set the same"
            )
        policy = DraftedPlanPolicy(self, sizes, seed)
        if self.model:
            read_weights(policy, self.model)
        return policy.eval()
