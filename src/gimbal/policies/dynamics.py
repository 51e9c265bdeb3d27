"""What an environment does next, learned from what it did: an ensemble of probabilistic networks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.policies.ensemble import ensemble, through
from gimbal.policies.worlds import AbstractWorld, AbstractWorldNetwork, Foreseen

LEAST_LOG_STD, MOST_LOG_STD = -4.0, 1.0  # in units of the targets' own spread


class DynamicsNetwork(AbstractWorldNetwork):
    """(o' - o, r) ~ N(mean_m(o, a), std_m(o, a)^2) of M networks at once, each of linear layers with SiLU between them.

    Inputs and targets are scaled by their spread over everything passed to ``observe``; the statistics are buffers, saved with the
    weights. The log of a deviation is softly bounded between -4 and 1, so that easy data cannot make it vanish.
    """

    spec: Dynamics

    def __init__(self, spec: Dynamics, seed: int) -> None:
        super().__init__(spec)
        inputs, targets = spec.observations + spec.actions, spec.observations + 1
        steps = len(spec.refine)
        read = inputs + bool(steps) * (targets + steps)  # the noisy target, and which step it is
        sizes = (read, *spec.hidden, 2 * targets + (spec.ends == "learned"))
        self.weights, self.biases = ensemble(sizes, spec.members, seed)
        # The same in every prediction, so that one is a function of what it is of, as a plan is.
        drawn_RMT = torch.randn((steps, spec.members, targets), generator=torch.Generator().manual_seed(0))
        self.register_buffer("noise_RMT", drawn_RMT, persistent=False)

    def encoded(self, action_KA: Shaped[Tensor, "*K a"]) -> Float[Tensor, "*K A"]:
        """A choice as a vector with a 1 in its place."""
        if not self.spec.choices:
            return action_KA
        return nn.functional.one_hot(action_KA[..., 0].long(), self.spec.actions).to(self.weights[0].dtype)

    def outputs(self, seen_MKO: Float[Tensor, "M K O"], action_KA: Tensor) -> Float[Tensor, "M K Z"]:
        """What the networks say: the target in its units, then the logits of its deviation and of an end; the target as refined."""
        found_MKZ, count = self.first(seen_MKO, action_KA), self.spec.observations + 1
        if not self.spec.refine:
            return found_MKZ
        said_MKT = found_MKZ[..., :count]
        for number, size in enumerate(self.spec.refine):
            noisy_MKT = said_MKT + size * self.noise_RMT[number][:, None]
            level_K = torch.full_like(seen_MKO[0, :, 0], number, dtype=torch.long)
            said_MKT = noisy_MKT - size * self.named_noise(seen_MKO, action_KA, noisy_MKT, level_K)
        return torch.cat([said_MKT, found_MKZ[..., count:]], -1)

    def first(self, seen_MKO: Float[Tensor, "M K O"], action_KA: Tensor) -> Float[Tensor, "M K Z"]:
        """What they say before any refinement."""
        inputs_MKI = self._inputs(seen_MKO, action_KA)
        beside = self.weights[0].shape[1] - inputs_MKI.shape[-1]
        return self._through(nn.functional.pad(inputs_MKI, (0, beside)) if beside else inputs_MKI)

    def named_noise(
        self,
        seen_MKO: Float[Tensor, "M K O"],
        action_KA: Tensor,
        noisy_MKT: Float[Tensor, "M K T"],
        level_K: Int[Tensor, " K"],
    ) -> Float[Tensor, "M K T"]:
        """The noise in these targets, in units of its size at each row's step of refinement."""
        level_KR = nn.functional.one_hot(level_K, len(self.spec.refine)).to(noisy_MKT.dtype)
        level_MKR = level_KR.expand(self.spec.members, -1, -1)
        return self._through(torch.cat([self._inputs(seen_MKO, action_KA), noisy_MKT, level_MKR], -1))[
            ..., : self.spec.observations + 1
        ]

    def _inputs(self, seen_MKO: Float[Tensor, "M K O"], action_KA: Tensor) -> Float[Tensor, "M K I"]:
        wide_MKA = self.encoded(action_KA).expand(len(seen_MKO), -1, -1)
        return self.inputs(self.checked(torch.cat([seen_MKO, wide_MKA], -1)))

    def _through(self, x_MKI: Float[Tensor, "M K I"]) -> Float[Tensor, "M K Z"]:
        return through(x_MKI, self.weights, self.biases, nn.functional.silu)

    def expected(self, found_MKZ: Float[Tensor, "M K Z"]) -> Float[Tensor, "M K T"]:
        return self.targets.mean_O + found_MKZ[..., : self.spec.observations + 1] * self.spread_T

    def forward(self, seen_MKO: Float[Tensor, "M K O"], action_KA: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean [M, K, T] in units of the targets, logarithm of the deviation in units of their spread, logit of an end [M, K]."""
        return self._said(self.outputs(seen_MKO, action_KA))

    def _said(self, found_MKZ: Float[Tensor, "M K Z"]) -> tuple[Tensor, Tensor, Tensor | None]:
        count = self.spec.observations + 1
        log_std_MKT = LEAST_LOG_STD + (MOST_LOG_STD - LEAST_LOG_STD) * found_MKZ[..., count : 2 * count].sigmoid()
        return self.expected(found_MKZ), log_std_MKT, self._end(found_MKZ)

    def _end(self, found_MKZ: Float[Tensor, "M K Z"]) -> Float[Tensor, "M K"] | None:
        return found_MKZ[..., -1] if self.spec.ends == "learned" else None

    def follow(self, first_NO: Float[Tensor, "N O"], action_NSA: Shaped[Tensor, "N S A"]) -> Foreseen:
        """Let each member continue from here by its own means and these actions. With S = 1: its predictions of single steps."""
        seen_MNO, found = first_NO.expand(self.spec.members, -1, -1), []
        for step in range(action_NSA.shape[1]):
            said = (seen_MNO, *self(seen_MNO, action_NSA[:, step]))
            found.append(said)
            seen_MNO = seen_MNO + said[1][..., :-1]
        seen, mean, log_std, ends = zip(*found, strict=True)
        end = None if ends[0] is None else torch.stack([x for x in ends if x is not None], 2)
        return Foreseen(torch.stack(seen, 2), torch.stack(mean, 2), torch.stack(log_std, 2), end)

    def unrefined(self, seen_KO: Float[Tensor, "K O"], action_KA: Shaped[Tensor, "K A"]) -> Foreseen:
        """Each member's prediction of one step, before any refinement: what the likelihood trains."""
        seen_MKO = seen_KO.expand(self.spec.members, -1, -1)
        mean, log_std, end = self._said(self.first(seen_MKO, action_KA))
        return Foreseen(
            seen_MKO[:, :, None], mean[:, :, None], log_std[:, :, None], None if end is None else end[..., None]
        )

    def refinement(
        self,
        seen_KO: Float[Tensor, "K O"],
        action_KA: Shaped[Tensor, "K A"],
        target_KT: Float[Tensor, "K T"],
        noise_MKT: Float[Tensor, "M K T"],
        level_K: Int[Tensor, " K"],
    ) -> Float[Tensor, "M K"]:
        """1/2 |e - named(x + s e)|^2, summed over the targets x, s being the size of the row's step."""
        size_K1 = torch.tensor(self.spec.refine, device=target_KT.device)[level_K][:, None]
        noisy_MKT = (target_KT - self.targets.mean_O) / self.spread_T + size_K1 * noise_MKT
        named_MKT = self.named_noise(seen_KO.expand(self.spec.members, -1, -1), action_KA, noisy_MKT, level_K)
        return 0.5 * (named_MKT - noise_MKT).square().sum(-1)

    def surprise(
        self,
        foreseen: Foreseen,
        next_NSO: Float[Tensor, "N S O"],
        reward_NS: Float[Tensor, "N S"],
        ended_NS: Bool[Tensor, "N S"],
    ) -> Float[Tensor, "M N S"]:
        """- log p of what came, in nats and in the units of observations and rewards; of an end too, where ends are learned."""
        target_MNST = torch.cat(
            [next_NSO - foreseen.seen_MNSO, reward_NS[..., None].expand(self.spec.members, -1, -1, -1)], -1
        )
        log_MNST = foreseen.log_std_MNST
        assert log_MNST is not None, "a world of this kind has a likelihood"
        z_MNST = (target_MNST - foreseen.mean_MNST) / self.spread_T * (-log_MNST).exp()
        nll_MNST = 0.5 * z_MNST.square() + log_MNST + self.spread_T.log() + 0.5 * math.log(2 * math.pi)
        nll_MNS = nll_MNST.sum(-1)
        if foreseen.end_MNS is None:
            return nll_MNS
        wanted_MNS = ended_NS.to(nll_MNS.dtype).expand_as(nll_MNS)
        return nll_MNS + nn.functional.binary_cross_entropy_with_logits(foreseen.end_MNS, wanted_MNS, reduction="none")

    @torch.no_grad()
    def step(
        self,
        seen_KO: Float[Tensor, "K O"],
        action_KA: Shaped[Tensor, "K A"],
        pick_K: Float[Tensor, " K"],
        noise_KT: Float[Tensor, "K T"],
    ) -> tuple[Float[Tensor, "K O"], Float[Tensor, " K"], Bool[Tensor, " K"]]:
        """What is observed next, the reward, and whether that is the end: of one member for each row, which ``pick_K`` in [0, 1) names,
        drawn by ``noise_KT`` ~ N(0, 1); 0 is that member's mean."""
        mean_MKT, log_std_MKT, end_MK = self(seen_KO.expand(self.spec.members, -1, -1), action_KA)
        own_K = (pick_K * self.spec.members).long().clamp(max=self.spec.members - 1)
        row_K = torch.arange(len(own_K), device=own_K.device)
        drawn_KT = mean_MKT[own_K, row_K] + self.spread_T * log_std_MKT[own_K, row_K].exp() * noise_KT
        next_KO = seen_KO + drawn_KT[:, :-1]
        own_end = None if end_MK is None else end_MK[own_K, row_K]
        return next_KO, drawn_KT[:, -1], self.ended(next_KO, own_end)

    @torch.no_grad()
    def returns(self, seen_KO: Float[Tensor, "K O"], action_KHA: Float[Tensor, "K H A"]) -> Float[Tensor, " K"]:
        """What these actions earn from here, by each member's own means; the mean over members. Nothing counts behind an end."""
        seen_MKO = seen_KO.expand(self.spec.members, -1, -1)
        earned_MK, on_MK = seen_KO.new_zeros(seen_MKO.shape[:2]), 1.0
        for step in range(action_KHA.shape[1]):
            found_MKZ = self.outputs(seen_MKO, action_KHA[:, step])
            mean_MKT = self.expected(found_MKZ)
            seen_MKO = seen_MKO + mean_MKT[..., :-1]
            earned_MK = earned_MK + on_MK * mean_MKT[..., -1]
            if self.spec.ends != "never":
                on_MK = on_MK * (~self.ended(seen_MKO, self._end(found_MKZ))).float()
        return earned_MK.mean(0)


@dataclass(frozen=True, kw_only=True)
class Dynamics(AbstractWorld):
    """A learned world: ``members`` networks of ``hidden`` layers that predict the change of the observation, the reward (PETS,
    arXiv:1805.12114), and the end of an episode.

    ``ends``: "never"; "learned", by a further output; or a known function of next observations [K, O] that is True where the
    environment ends. ``choices``: actions are discrete, one of ``actions``.

    ``refine`` = s_1 > ... > s_R: after its prediction x of the target, in units of the targets' spread, it names and takes away noise
    of each of these sizes in turn (PDE-Refiner, arXiv:2308.05732),

        x <- x~ - s_k named(o, a, x~, k),   x~ = x + s_k e,   trained by 1/2 |e - named(o, a, target + s_k e, k)|^2

    so that what is small in the target is learned as carefully as what is large. The same networks name it, from a noisy target and a
    step beside o and a. Deviations and ends are those of the first prediction.

    - ``refine`` = (): the first prediction, bit for bit.
    - ``members`` = 1: one network, with no other to contradict its errors.
    - Linear dynamics with Gaussian noise: the optimum of the likelihood is their own mean and deviation.

    Published (PDE-Refiner): s_k = s^(k/R), R 3, s 2e-7 to 1e-3, U-nets on fields, the first prediction by squared error. Ours: it
    has the likelihood; every row trains it and one random step; e is drawn once for all predictions, of each member its own.
    """

    members: int = 5
    choices: bool = False
    refine: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(0 < size <= 1 for size in self.refine) or any(a <= b for a, b in pairwise(self.refine)):
            raise ValueError(
                f"world.refine is {self.refine}; it names sizes of noise, above 0 and at most 1, each smaller than the one before, or "
                "nothing: ()"
            )
        if self.members < 1:
            raise ValueError(f"Dynamics.members is {self.members}; it is at least 1")
        super().__post_init__()

    def load(self, seed: int) -> DynamicsNetwork:
        return DynamicsNetwork(self, stable_hash("world", seed) % 2**63)
