"""A choice by several tables of values at once: the best in the worst of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from gimbal.composition import Composition, Refusal, Verdict
from gimbal.policies.base import AbstractPolicySpec, Family
from gimbal.policies.control import STEPS, AbstractChoicePolicy, saved
from gimbal.policies.greedy import GreedyPolicy


class LeastValuePolicy(AbstractChoicePolicy):
    """argmax_a min_j Q_j(o, a): always that, so its log-probability is 0. It has no gradient."""

    def __init__(self, members: list[dict[str, Any]]) -> None:
        super().__init__()
        self.config = {"members": members, **{name: members[0][name] for name in ("observations", "actions")}}
        self.members = nn.ModuleList(GreedyPolicy(**sizes, seed=0) for sizes in members)
        self.requires_grad_(False)

    def values(self, observation_BO: Float[Tensor, "B O"]) -> Float[Tensor, "B V"]:
        """The least that any member says of each choice."""
        return torch.stack([member.values(observation_BO) for member in self.members]).amin(0)  # type: ignore[operator]

    def draw(
        self, observation_BO: Float[Tensor, "B O"], noise_BA: Float[Tensor, "B A"], temperature_B: Float[Tensor, " B"]
    ) -> tuple[Int[Tensor, "B A"], Float[Tensor, " B"]]:
        return self.values(observation_BO).argmax(-1, keepdim=True), torch.zeros_like(temperature_B)

    def assess(
        self, observation_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"], temperature: float
    ) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
        best_K1 = self.values(observation_KO).argmax(-1, keepdim=True)
        logprob_K = torch.where(action_KA == best_K1, 0.0, -torch.inf)[:, 0]
        return logprob_K, torch.zeros_like(logprob_K)


@dataclass(frozen=True, kw_only=True)
class LeastValues(AbstractPolicySpec):
    """Plays the choice that is best by the least value of several trained networks (IWOCS, arXiv:2410.06212).

        pi(o) = argmax_a min_j Q_j(o, a),   Q_j of the directories ``model`` and ``beside``, each of a run of ``dqn``

    Each Q_j was trained in one environment of a family, so the choice is cautious about which of them this is. It is played and not
    trained: in Python, ``evaluate(replace(run, policy=LeastValues(...)))`` with a run of ``dqn``.

    - one network: its own greedy policy.
    - equal networks: the policy of one.
    - a network whose values are the least in every state, as where one environment of the family is the hardest throughout: its own
      greedy policy again, whatever the others say. So it was in a family of pendulums (docs/log.md).

    Confidence: partial; the paper trusts Q_j only where a model of its own data predicts what happens, which is left out.
    """

    family: ClassVar[Family] = STEPS

    model: str = ""
    beside: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.model and not self.beside:
            raise ValueError(
                "LeastValues has no networks: name directories that runs of dqn saved, policy.beside='(\"runs/dqn-0/model\",)'"
            )

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        yield from super().fits(whole)
        yield Refusal(
            "LeastValues is played and not trained: train each of its networks by dqn, and evaluate them together in Python "
            "(docs/robust.md)"
        )

    def load(self, seed: int = 0) -> LeastValuePolicy:
        places = [place for place in (self.model, *self.beside) if place]
        members = [saved(GreedyPolicy, place, seed) for place in places]
        for place, member in zip(places, members, strict=True):
            if member.interface != members[0].interface:
                raise ValueError(
                    f"LeastValues takes networks of the same observations and choices, and {place} has {member.interface}, "
                    f"{places[0]} {members[0].interface}: leave one out"
                )
        policy = LeastValuePolicy([member.config for member in members])
        for own, member in zip(policy.members, members, strict=True):
            own.load_state_dict(member.state_dict())
        return policy.eval()

    def at(self, directory: Path) -> LeastValues:
        return replace(self, model=str(directory))
