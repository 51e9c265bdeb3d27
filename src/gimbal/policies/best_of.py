"""Policies that sample proposals from a flow, score them and play one: a vector of real actions between bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.ops import stable_hash
from gimbal.policies.base import Family
from gimbal.policies.control import (
    NO_DENSITY,
    AbstractBoundedSpec,
    config_of,
    read_weights,
    relu_mlp,
    without_density,
)
from gimbal.policies.ensemble import ActionValueNetwork
from gimbal.policies.flow import FLOW, Velocity, followed, hidden_of
from gimbal.policies.implicit import AbstractImplicitPolicy
from gimbal.policies.picks import AbstractPick, Best
from gimbal.policies.squashed import SquashedGaussianPolicy

HALF = 0.5  # of each flow


class BestOfPolicy(AbstractImplicitPolicy):
    """a = bound x_p, where p is picked by the scores Q(o, bound x_1), Q(o, bound x_2), ... of proposals x in [-1, 1].

    The first ``proposals`` are where the flow leads from noise. With ``edit`` above 0 each of them is also proposed edited:
    clip(x + d, -1, 1), d = ``edit`` tanh(u), u ~ N(mean(o, x), std(o, x)^2). Beside another flow v' it is the mix of velocities
    (1 - ``share``) v + ``share`` v' that leads from noise. At a temperature of 0 the proposal of the largest score is
    played, else the one that ``pick`` draws. Critic (``judge``) and V (``value``) are copies that the update brings: no gradient of
    the policy reaches them.

    It has no log-probability: the density of a pick among proposals has no closed form; what stands for one is around
    bound v(o, 0, 0).
    """

    def __init__(self, spec: BestOf, sizes: dict[str, Any], seed: int) -> None:
        super().__init__()
        self.spec = spec
        observations, actions, hidden, bound = (sizes[name] for name in ("observations", "actions", "hidden", "bound"))
        self.bounded(observations, actions, hidden, bound, sizes["normalize"])
        self.config |= {name: sizes[name] for name in ("members", "layer_norm", "edits", "values")}
        self.flow = Velocity(observations, actions, tuple(hidden), seed)

        def seeded(name: str) -> int:
            return stable_hash("best of", name, seed) % 2**63

        both = observations + actions
        self.edits = None
        if sizes["edits"]:  # within [-1, 1]; ``edit`` scales them
            self.edits = SquashedGaussianPolicy(both, actions, hidden, 1.0, seeded("edit"))
        members, layer_norm = sizes["members"], sizes["layer_norm"]
        self.judge = ActionValueNetwork(both, tuple(hidden), members, bound, seeded("judge"), layer_norm)
        self.value = relu_mlp([observations, *hidden, 1], seeded("value")) if sizes["values"] else None
        for copied in (self.judge, self.value):
            if copied is not None:
                copied.requires_grad_(False)
        # Hidden in a tuple: another run's flow is neither trained nor sent nor saved here.
        self.others: tuple[Velocity, ...] = ()

    def _velocity(self, observation_KO: Tensor, x_KA: Tensor, time_K1: Tensor) -> Tensor:
        own_KA = self.flow(observation_KO, x_KA, time_K1)
        for other in self.others:
            held = next(other.parameters())
            if (held.device, held.dtype) != (
                x_KA.device,
                x_KA.dtype,
            ):  # to() walks all weights, at each step of each action
                other.to(x_KA)
            own_KA = own_KA.lerp(other(observation_KO, x_KA, time_K1), self.spec.share)
        return own_KA

    def take_scores(self, critic: nn.Module, value: nn.Module | None = None) -> None:
        """Let copies of these score from now on."""
        self.judge.load_state_dict(critic.state_dict())
        if self.value is not None:
            assert value is not None, "a pick that reads V needs one"
            self.value.load_state_dict(value.state_dict())

    def noise(self, generator: np.random.Generator, steps: int) -> Float[Tensor, "S X"]:
        """Of the flow's proposals, of their edits, and one number by which one is picked."""
        kinds = 1 if self.edits is None else 2
        count = kinds * self.spec.proposals * self.actions + 1
        return torch.from_numpy(generator.standard_normal((steps, count), dtype=np.float32))

    def propose(self, normal_KO: Float[Tensor, "K O"], noise_KX: Float[Tensor, "K X"]) -> Float[Tensor, "K P A"]:
        """Actions in units of the bound: the flow's, and behind them the edited ones."""
        count, width = len(normal_KO), self.spec.proposals * self.actions
        seen_QO = normal_KO.repeat_interleave(self.spec.proposals, 0)
        start_QA = noise_KX[:, :width].reshape(-1, self.actions)
        share_QA = followed(self._velocity, seen_QO, start_QA, self.spec.flow_steps).clamp(-1, 1)
        share_KPA = share_QA.reshape(count, -1, self.actions)
        if self.edits is None:
            return share_KPA
        edited_QA = self.edited(seen_QO, share_QA, noise_KX[:, width:-1].reshape(-1, self.actions))[0]
        return torch.cat([share_KPA, edited_QA.reshape(count, -1, self.actions)], 1)

    def edited(
        self, normal_KO: Float[Tensor, "K O"], share_KA: Float[Tensor, "K A"], noise_KA: Float[Tensor, "K A"]
    ) -> tuple[Float[Tensor, "K A"], Float[Tensor, " K"]]:
        """Edits of these actions, with gradient, and the log-density of tanh(u)."""
        assert self.edits is not None, "policy.edit is 0"
        edit_KA, logprob_K = self.edits.sample(torch.cat([normal_KO, share_KA], -1), noise_KA)
        return (share_KA + self.spec.edit * edit_KA).clamp(-1, 1), logprob_K

    def scores(
        self, critic: nn.Module, normal_KO: Float[Tensor, "K O"], share_KPA: Float[Tensor, "K P A"]
    ) -> Float[Tensor, "K P"]:
        seen_QO = normal_KO.repeat_interleave(share_KPA.shape[1], 0)
        q_QM = critic(seen_QO, self.bound * share_KPA.flatten(0, 1))
        score_Q = q_QM.min(-1).values if self.spec.score == "least" else q_QM.mean(-1)
        return score_Q.reshape(share_KPA.shape[:2])

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B X"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B A"], Float[Tensor, " B"]]:
        normal_BO = self._seen(observation_BO)
        share_BPA = self.propose(normal_BO, noise_BA.to(self._dtype))
        score_BP = self.scores(self.judge, normal_BO, share_BPA).float()
        value_B = score_BP.new_zeros(len(score_BP)) if self.value is None else self.value(normal_BO)[:, 0].float()
        pick_B = self.spec.pick(score_BP, value_B, torch.special.ndtr(noise_BA[:, -1].float()))
        pick_B = torch.where(temperature_B > 0, pick_B, score_BP.argmax(-1))
        action_BA = self.bound * share_BPA[torch.arange(len(pick_B)), pick_B].float()
        return self.told(observation_BO, action_BA, temperature_B)

    def centre(self, observation_KO: Float[Tensor, "K O"]) -> Float[Tensor, "K A"]:
        """Where the flow points at first from noise 0."""
        start_KA = torch.zeros(len(observation_KO), self.actions, dtype=self._dtype, device=observation_KO.device)
        return self.bound * self.flow(self._seen(observation_KO), start_KA, start_KA[:, :1]).float()

    @property
    def _dtype(self) -> torch.dtype:
        return next(self.flow.parameters()).dtype

    def _seen(self, observation_KO: Tensor) -> Tensor:
        return self.normal(observation_KO).to(self._dtype)


@dataclass(frozen=True, kw_only=True)
class BestOf(AbstractBoundedSpec):
    """Proposes actions by a flow, scores them by a critic and plays the one that ``pick`` takes: on ``observations`` inputs, with
    ``actions`` continuous actions in [-``bound``, ``bound``], or with the weights saved in the directory ``model``.

    - ``proposals`` = 1, ``edit`` = 0: the flow alone, behavior cloning.
    - ``edit`` above 0: each proposal is also scored after an edit of at most this share of the bound in each dimension (EXPO).

    ``beside`` is the directory of another policy of this kind that a run of idql or expo saved. Proposals then come from both flows
    at once, the velocity being (1 - ``share``) of this one's and ``share`` of the other's (GPC, arXiv:2510.01068: of two flows, and
    the convex mix alone; the best share is found by trying, as there).

    - ``share`` = 0: this flow alone, bit for bit; 1: the other alone.
    - Twice the same flow: that flow, whatever ``share`` is.

    ``score`` is the ``least`` or the ``mean`` of the critic's ``members``. Flow, edits and critic have the sizes ``hidden``.
    ``normalize``: scale observations by their own spread. It has no log-probability, so only updates that need none take it.
    """

    family: ClassVar[Family] = NO_DENSITY

    proposals: int = 32
    flow_steps: int = 10
    edit: float = 0.0
    pick: AbstractPick = Best()
    score: Literal["least", "mean"] = "least"
    members: int = 2
    layer_norm: bool = False
    beside: str = ""
    share: float = HALF

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("proposals", "flow_steps", "members"):
            if vars(self)[name] < 1:
                raise ValueError(f"BestOf.{name} is {vars(self)[name]}; it is at least 1")
        if not 0 <= self.edit <= 2:
            raise ValueError(
                f"BestOf.edit is {self.edit}; it is the largest edit as a share of the bound, from 0 (none) to 2"
            )

        if not 0 <= self.share <= 1:
            raise ValueError(f"BestOf.share is {self.share}; it is the part of the flow in policy.beside, from 0 to 1")
        if self.beside and self.normalize:
            raise ValueError(
                f"policy.beside={self.beside} is mixed with a flow that must see observations as it does: set policy.normalize=false"
            )
        if not self.beside and self.share != HALF:
            raise ValueError(
                f"policy.share is {self.share}, the part of another flow, and there is none: set policy.beside=runs/RUN/model, or "
                "leave policy.share out"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield from without_density(self, whole)
        if (found := whole.run.sampling.temperature) not in (0, 1):
            yield Refusal(
                f"BestOf plays the proposal that policy.pick takes, or at a temperature of 0 the best, and has no density that another "
                f"would change: sampling.temperature is {found:g}; set sampling.temperature=1"
            )

    def load(self, seed: int = 0) -> BestOfPolicy:
        own = {name: vars(self)[name] for name in ("observations", "actions", "bound", "normalize", "members")}
        own |= {"hidden": list(self.hidden), "layer_norm": self.layer_norm}
        own |= {"edits": self.edit > 0, "values": self.pick.reads_value}
        saved = config_of(self, own, "idql or expo") if self.model else own
        policy = BestOfPolicy(self, saved, seed)
        for name in ("edits", "values"):
            if policy.config[name] != own[name]:
                raise ValueError(
                    f"{self.model} was saved {'with' if policy.config[name] else 'without'} a network for {name}, and policy.edit="
                    f"{self.edit:g} with policy.pick={type(self.pick).__name__} is the contrary: set them as its run had them"
                )
        if self.model:
            read_weights(policy, self.model)
        if self.beside:
            sizes = tuple(hidden_of(self.beside, "policy.beside", self))
            other = Velocity(self.observations, self.actions, sizes, seed)
            read_weights(other, self.beside, FLOW)
            policy.others = (other.requires_grad_(False),)
        return policy.eval()
