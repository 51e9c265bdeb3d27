"""Policies that rank what a frozen flow proposes, and can say how likely a choice was: a vector of real actions between bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from gimbal.composition import Advice, Composition, Verdict
from gimbal.ops import philox, stable_hash
from gimbal.policies.base import Family
from gimbal.policies.categorical import choose, judge
from gimbal.policies.control import STEPS, AbstractBoundedSpec, AbstractRealPolicy, mlp, output_of
from gimbal.policies.flow import Velocity, on_flow


class RankedPolicy(AbstractRealPolicy):
    """p ~ softmax(D(o, x_p) / T) over proposals x_p = g(o, z_p),  a = bound x_p, where the flow g never moves.

    The noises z_p are drawn once, with the policy, so that an action is found again among the proposals of its observation: the
    nearest. Its log-probability is that of the choice. At a temperature of 0 the proposal of the largest D is played.
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        hidden: list[int],
        bound: float,
        normalize: bool,
        proposals: int,
        flow_steps: int,
        flow_hidden: list[int],
        seed: int,
    ) -> None:
        super().__init__()
        self.bounded(observations, actions, hidden, bound, normalize)
        self.config |= {"proposals": proposals, "flow_steps": flow_steps, "flow_hidden": flow_hidden}
        self.flow_steps = flow_steps
        self.flow = Velocity(observations, actions, tuple(flow_hidden), stable_hash("flow", seed) % 2**63)
        self.flow.requires_grad_(False)
        drawn = philox("ranked", seed).standard_normal((proposals, actions), dtype=np.float32)
        self.register_buffer("start_PA", torch.from_numpy(drawn))
        self.rank = mlp([observations + actions, *hidden, 1], 0.01, seed)  # the first choice is nearly uniform

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S 1"]:
        return torch.from_numpy(generator.random((steps, 1), dtype=np.float32))

    @torch.no_grad()
    def propose(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K P A"]:
        """Actions in units of the bound. The flow sees observations as they are: those that it was trained on."""
        start_PA: Any = self.start_PA
        seen_QO = observation_KO.to(start_PA.dtype).repeat_interleave(len(start_PA), 0)
        share_QA = self.flow.end(seen_QO, start_PA.repeat(len(observation_KO), 1), self.flow_steps)
        return share_QA.reshape(len(observation_KO), *start_PA.shape)

    def scores(self, observation_KO: Float[Tensor, "K O"], share_KPA: Float[Tensor, "K P A"]) -> Float[Tensor, "K P"]:
        normal_QO = self.normal(observation_KO).repeat_interleave(share_KPA.shape[1], 0)
        score_Q1 = output_of(self.rank, torch.cat([normal_QO, share_KPA.flatten(0, 1).to(normal_QO.dtype)], -1))
        return score_Q1.reshape(share_KPA.shape[:2])

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B 1"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        share_BPA = self.propose(observation_BO)
        pick_B1, logprob_B = choose(self.scores(observation_BO, share_BPA), noise_BA, temperature_B)
        return self.bound * share_BPA[torch.arange(len(pick_B1)), pick_B1[:, 0]].float(), logprob_B

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        share_KPA = self.propose(observation_KO)
        return judge(self.scores(observation_KO, share_KPA), self.picked(share_KPA, action_KA), temperature)

    def picked(self, share_KPA: Float[Tensor, "K P A"], action_KA: Float[Tensor, "K A"]) -> Int[Tensor, "K 1"]:
        """Which proposal an action was."""
        return (share_KPA.float() - action_KA[:, None] / self.bound).square().sum(-1).argmin(-1, keepdim=True)


@dataclass(frozen=True, kw_only=True)
class Ranked(AbstractBoundedSpec):
    """Ranks ``proposals`` of a frozen flow, and plays one in proportion to exp(D / T) (the discriminator of RAD-2, arXiv:2604.15308):
    on ``observations`` inputs, with ``actions`` continuous actions in [-``bound``, ``bound``], such as a plan; or the policy saved in
    the directory ``model``.

    D is a policy over few choices, however many numbers an action has, so any policy gradient trains it; the flow keeps actions to what
    its data show. ``flow`` is the directory of a policy that a run of idql or expo saved: its flow is taken, in ``flow_steps`` steps.

    - ``proposals`` = 1: always the same action of a state, of probability 1; nothing is learned.
    - all D alike: the flow, by any of its proposals.

    - proposals that coincide, as where the flow is clipped: the likelihood is that of the first of them, though any may be
      played. Ratios and gradients stay exact; entropy counts them apart.

    Confidence: abstract; ours: a softmax (the abstract says that RL trains the discriminator), the flow's noises, which are drawn once
    so that the likelihood of a choice needs no other record than its action. RAD-2's second part, corrected plans that train the
    generator too, is ``CorrectedPlans`` (recipe rad_2_flow).
    """

    family: ClassVar[Family] = STEPS

    flow: str = ""
    flow_steps: int = 5
    proposals: int = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.flow_steps < 1 or self.proposals < 1:
            raise ValueError(
                f"Ranked has flow_steps {self.flow_steps} and proposals {self.proposals}; both are at least 1"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        if not self.flow and not self.model:
            yield Advice(
                "policy.flow names no flow, so what one without training proposes is ranked: policy.flow=runs/RUN/model, of a run of "
                "idql",
                always=True,
            )

    def load(self, seed: int = 0) -> RankedPolicy:
        return on_flow(RankedPolicy, self, seed, without=list(self.hidden))
