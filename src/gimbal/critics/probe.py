"""A value of the whole rollout, from features of the policy's own forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from gimbal import ops
from gimbal.advantages.estimators.gae import GAE
from gimbal.composition import Advice, Composition, Verdict
from gimbal.critics.base import AbstractCritic, AbstractCriticSpec
from gimbal.ops.groups import group_others_mean, group_size
from gimbal.records import AbstractDecisions, TrainBatch


class FittedProbe(AbstractCritic):
    """The last few steps' features and targets, and the regression on them. Each decision gets the rollout's value."""

    reads: ClassVar[frozenset[str]] = frozenset({"hidden_NSH", "entropy_NS"})

    def __init__(self, spec: Probe) -> None:
        super().__init__()
        self.spec = spec
        self.seen: list[tuple[Tensor, Tensor]] = []  # features [M, F] and target [M] of each step
        self.fit: dict[str, Tensor] = {}  # mean_F, scale_F, weight_F, constant

    def value(
        self, decisions: AbstractDecisions, hidden_NSH: Float[Tensor, "N S H"] | None = None
    ) -> tuple[Float[Tensor, "N S"], Float[Tensor, " N"]]:
        raise TypeError("a Probe is fitted after each step: no gradient reaches it")

    def columns(self, batch: TrainBatch) -> Mapping[str, Tensor]:
        value_N = self.predict(self.features(batch)).to(batch.mask_NS.device)
        return {"value_NS": value_N[:, None] * batch.mask_NS, "bootstrap_N": torch.zeros_like(value_N)}

    def features(self, batch: TrainBatch) -> Float[Tensor, "N F"]:
        """Of the prompt, and with a window of the last decisions and of all entropies."""
        hidden_NSH, mask_NS = batch.column("hidden_NSH", self), batch.mask_NS
        first_N = mask_NS.long().argmax(-1)  # its hidden state is that of the prompt's last token
        found = [hidden_NSH[torch.arange(len(first_N), device=first_N.device), first_N]]
        if self.spec.window:
            left_NS = mask_NS.flip(-1).cumsum(-1).flip(-1)  # counted decisions from here to the end
            last_NS = mask_NS & (left_NS <= self.spec.window)
            found.append((hidden_NSH * last_NS[..., None]).sum(1) / last_NS.sum(-1, keepdim=True).clamp(min=1))
            entropy_NS = batch.column("entropy_NS", self)
            mean_N = ops.sequence_mean(entropy_NS, mask_NS)
            spread_N = ops.sequence_mean((entropy_NS - mean_N[:, None]).square(), mask_NS).sqrt()
            found.append(torch.stack([mean_N, spread_N, entropy_NS.amax(-1)], -1))
        return torch.cat(found, -1).cpu()

    def predict(self, feature_NF: Float[Tensor, "N F"]) -> Float[Tensor, " N"]:
        """0 before the first fit."""
        if not self.fit:
            return feature_NF.new_zeros(len(feature_NF))
        scaled_NF = (feature_NF.double() - self.fit["mean_F"]) / self.fit["scale_F"]
        return (scaled_NF @ self.fit["weight_F"] + self.fit["constant"]).float()

    def observe(self, batch: TrainBatch) -> None:
        group_N = batch.column("group_N", self)
        taken_N = (group_size(group_N) > 1) & batch.mask_NS.any(-1)
        target_N = group_others_mean(batch.return_N, group_N)
        self.seen = [*self.seen, (self.features(batch)[taken_N.cpu()], target_N[taken_N].cpu())][-self.spec.steps :]
        feature_MF, target_M = (torch.cat(column).double() for column in zip(*self.seen, strict=True))
        if len(target_M):
            self.fit = ridge(feature_MF, target_M, self.spec.ridge)

    def get_extra_state(self) -> dict[str, Any]:
        return {"seen": list(self.seen), "fit": dict(self.fit)}

    def set_extra_state(self, state: Mapping[str, Any]) -> None:
        self.seen, self.fit = [(x, y) for x, y in state["seen"]], dict(state["fit"])


def ridge(feature_MF: Float[Tensor, "M F"], target_M: Float[Tensor, " M"], strength: float) -> dict[str, Tensor]:
    """argmin_w mean (target - constant - w z)^2 + strength |w|^2 for features z of mean 0 and scale 1; one that never varies is 0."""
    mean_F, scale_F = feature_MF.mean(0), feature_MF.std(0, correction=0)
    scale_F = scale_F.where(scale_F > 1e-6 * (1 + mean_F.abs()), float("inf"))
    z_MF, constant = (feature_MF - mean_F) / scale_F, target_M.mean()
    count, width = z_MF.shape
    if width <= count:
        system_FF = z_MF.T @ z_MF + count * strength * torch.eye(width, dtype=z_MF.dtype)
        weight_F = torch.linalg.solve(system_FF, z_MF.T @ (target_M - constant))
    else:  # the same by way of the smaller system
        system_MM = z_MF @ z_MF.T + count * strength * torch.eye(count, dtype=z_MF.dtype)
        weight_F = z_MF.T @ torch.linalg.solve(system_MM, target_M - constant)
    return {"mean_F": mean_F, "scale_F": scale_F, "weight_F": weight_F, "constant": constant}


@dataclass(frozen=True, kw_only=True)
class Probe(AbstractCriticSpec):
    """Ridge regression from the policy's hidden states to the mean reward of a rollout's peers (POISE, arXiv:2605.07579).

    phi_i = [hidden state of the prompt's last token; mean hidden state of the last ``window`` decisions; mean, deviation and maximum
    of the entropies];  target of phi_i: the mean reward of the *other* rollouts of its group, over the last ``steps`` learner steps.

    Fitted after the update on a batch, so its values for a batch have seen no reward of it. With CrossRolloutBaseline each rollout is
    compared with the prediction from the others' features. With GAE(gamma=1, lam=1) it is compared with its own, which is biased: those
    features know the answer that is judged.

    - ``window`` = 0: a value of only the prompt.
    - ``ridge`` to infinity, or identical features: the mean target, a constant.

    It returns 0 before the first fit: hold the policy for a step (Delayed). Published: ``window`` 10, two rollouts per prompt. Ours:
    last layer and one prompt token instead of a chosen layer and ten, the choice of entropy statistics, ``steps`` and ``ridge``.

    Confidence: partial; ours: features as above, the length of the memory and the strength of the ridge.
    """

    fitted: ClassVar[bool] = True

    window: int = 10
    steps: int = 8
    ridge: float = 1.0

    def __post_init__(self) -> None:
        if self.window < 0 or self.steps < 1 or not self.ridge > 0:
            raise ValueError(
                f"Probe has window {self.window} (0 or above), steps {self.steps} (at least 1) and ridge {self.ridge} (above 0)"
            )

    def load(self, seed: int) -> FittedProbe:
        return FittedProbe(self).eval()

    def fits(self, whole: Composition) -> Iterator[Verdict]:
        if whole.has(GAE):
            yield Advice(
                "GAE reads Probe at every decision, whose features know the rollout they judge: use CrossRolloutBaseline"
            )
