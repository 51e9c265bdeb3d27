"""A learned world that draws what comes next by denoising, so that it may have several shapes: two outcomes, not the hump between."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from gimbal.ops import stable_hash
from gimbal.policies.control import relu_mlp
from gimbal.policies.ensemble import ensemble, through
from gimbal.policies.worlds import AbstractWorld, AbstractWorldNetwork, Foreseen

LEAST, MOST = 0.02, 5.0  # sizes of noise, in units of the targets' spread
# Per log s: the network reads a size of noise as waves of it, beside log s / 4, which alone blurs small noise.
WAVES = (0.5, 1.0, 2.0)
CURVE = 7.0  # rho of EDM: the larger, the more of a sampler's steps are at small noise


class DiffusionDynamicsNetwork(AbstractWorldNetwork):
    """D(x + s e; s, o, a): the target x = (o' - o, r), in units of its spread, that stands behind this noise of size s.

    With EDM's scales (arXiv:2206.00364) for targets of spread 1, so that a network F of linear layers with SiLU between them reads and
    says numbers of size 1 at any s:

        D = x_s / (1 + s^2) + s / sqrt(1 + s^2) F(x_s / sqrt(1 + s^2), log s, o, a),    x_s = x + s e
    """

    spec: DiffusionDynamics

    def __init__(self, spec: DiffusionDynamics, seed: int) -> None:
        super().__init__(spec)
        inputs, targets = spec.observations + spec.actions, spec.observations + 1
        self.weights, self.biases = ensemble((inputs + targets + 1 + 2 * len(WAVES), *spec.hidden, targets), 1, seed)
        sizes = [inputs + spec.observations, *spec.hidden, 1]
        self.end = relu_mlp(sizes, stable_hash("end", seed) % 2**63) if spec.ends == "learned" else None

    def encoded(self, action_KA: Shaped[Tensor, "*K a"]) -> Float[Tensor, "*K A"]:
        return action_KA

    def units(self, target_KT: Float[Tensor, "*K T"]) -> Float[Tensor, "*K T"]:
        """Targets in units of their spread."""
        return (target_KT - self.targets.mean_O) / self.spread_T

    def denoised(
        self,
        seen_KO: Float[Tensor, "K O"],
        action_KA: Float[Tensor, "K A"],
        noisy_KT: Float[Tensor, "K T"],
        size_K1: Float[Tensor, "K 1"],
    ) -> Float[Tensor, "K T"]:
        """D, in units of the targets' spread."""
        return self._denoised(self.inputs(self.checked(torch.cat([seen_KO, action_KA], -1))), noisy_KT, size_K1)

    def _denoised(self, inputs_KI: Tensor, noisy_KT: Tensor, size_K1: Tensor) -> Tensor:
        whole_K1 = (1 + size_K1.square()).sqrt()
        log_K1 = size_K1.log()
        wave_KW = log_K1 * log_K1.new_tensor(WAVES)
        read_KR = torch.cat([inputs_KI, noisy_KT / whole_K1, log_K1 / 4, wave_KW.sin(), wave_KW.cos()], -1)
        said_KT = through(read_KR[None], self.weights, self.biases, nn.functional.silu)[0]
        return noisy_KT / whole_K1.square() + size_K1 / whole_K1 * said_KT

    def drawn(
        self, seen_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"], noise_KT: Float[Tensor, "K T"]
    ) -> Float[Tensor, "K T"]:
        """The targets to which this noise e leads, in units of their spread, from x = D + MOST e on: steps of DPM-Solver++(2M) down to
        LEAST, and D there, ``evaluations`` passes in all.

            x <- s'/s x + (1 - s'/s) (D + (D - D_before) log(s/s') / (2 log(s_before/s))),    the first step by D alone
        """
        inputs_KI = self.inputs(self.checked(torch.cat([seen_KO, action_KA], -1)))
        sizes, x_KT, before = levels(self.spec.evaluations), noise_KT * MOST, None
        for number, (size, smaller) in enumerate(pairwise(sizes)):
            clean_KT = self._denoised(inputs_KI, x_KT, torch.full_like(x_KT[:, :1], size))
            ahead_KT = clean_KT
            if before is None:  # noise of size MOST is around the target, not around 0
                x_KT = x_KT + clean_KT
            else:
                ratio = math.log(size / smaller) / math.log(sizes[number - 1] / size)
                ahead_KT = clean_KT + ratio / 2 * (clean_KT - before)
            x_KT, before = smaller / size * x_KT + (1 - smaller / size) * ahead_KT, clean_KT
        return self._denoised(inputs_KI, x_KT, torch.full_like(x_KT[:, :1], sizes[-1]))

    def missed(
        self,
        said_KT: Float[Tensor, "K T"],
        clean_KT: Float[Tensor, "K T"],
        size_K1: Float[Tensor, "K 1"],
    ) -> Float[Tensor, " K"]:
        """mean_T (1 + s^2) / s^2 (D - x)^2: F's error, of one size at all s."""
        return ((1 + size_K1.square()) / size_K1.square() * (said_KT - clean_KT).square()).mean(-1)

    def ending(
        self, seen_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"], next_KO: Float[Tensor, "K O"]
    ) -> Float[Tensor, " K"] | None:
        """The logit of an end with this step, from what it led to as well; None where ends are not learned."""
        if self.end is None:
            return None
        inputs_KI = self.inputs(self.checked(torch.cat([seen_KO, action_KA], -1)))
        changed_KO = (next_KO - seen_KO - self.targets.mean_O[:-1]) / self.spread_T[:-1]
        return self.end(torch.cat([inputs_KI, changed_KO], -1))[..., 0]

    def advanced(
        self, seen_KO: Float[Tensor, "K O"], action_KA: Float[Tensor, "K A"], noise_KT: Float[Tensor, "K T"]
    ) -> tuple[Float[Tensor, "K T"], Float[Tensor, " K"] | None]:
        """The targets to which this noise leads, in their own units, and the logit of an end."""
        target_KT = self.targets.mean_O + self.spread_T * self.drawn(seen_KO, action_KA, noise_KT)
        return target_KT, self.ending(seen_KO, action_KA, seen_KO + target_KT[:, :-1])

    @torch.no_grad()
    def step(
        self,
        seen_KO: Float[Tensor, "K O"],
        action_KA: Shaped[Tensor, "K A"],
        pick_K: Float[Tensor, " K"],
        noise_KT: Float[Tensor, "K T"],
    ) -> tuple[Float[Tensor, "K O"], Float[Tensor, " K"], Bool[Tensor, " K"]]:
        """One network, so ``pick_K`` is not read; ``noise_KT`` is where the sampler begins, and 0 is one of its draws, no mean."""
        target_KT, end_K = self.advanced(seen_KO, action_KA, noise_KT)
        next_KO = seen_KO + target_KT[:, :-1]
        return next_KO, target_KT[:, -1], self.ended(next_KO, end_K)

    @torch.no_grad()
    def follow(self, first_NO: Float[Tensor, "N O"], action_NSA: Shaped[Tensor, "N S A"]) -> Foreseen:
        """``draws`` futures of each row, by noise that is the same in every call. Without gradient."""
        n, s, _ = action_NSA.shape
        draws = self.spec.draws
        noise_MNST = self._noise(draws, n, s).to(first_NO)
        now_KO, found = first_NO.repeat(draws, 1), []
        for step in range(s):
            target_KT, end_K = self.advanced(
                now_KO, action_NSA[:, step].repeat(draws, 1), noise_MNST[:, :, step].flatten(0, 1)
            )
            found.append((now_KO, target_KT, end_K))
            now_KO = now_KO + target_KT[:, :-1]
        seen, target, ends = zip(*found, strict=True)
        end_MNS = None if ends[0] is None else torch.stack(ends, -1).reshape(draws, n, s)
        split = (draws, n, s, -1)
        return Foreseen(torch.stack(seen, 1).reshape(split), torch.stack(target, 1).reshape(split), None, end_MNS)

    @torch.no_grad()
    def returns(self, seen_KO: Float[Tensor, "K O"], action_KHA: Float[Tensor, "K H A"]) -> Float[Tensor, " K"]:
        """The mean over ``draws`` futures. All plans meet the same noise, so that the better one is not the luckier one."""
        draws, horizon, k = self.spec.draws, action_KHA.shape[1], len(seen_KO)
        noise_MHT = self._noise(draws, 1, horizon).to(seen_KO)[:, 0].repeat_interleave(k, 0)
        now_JO, earned_J, on_J = seen_KO.repeat(draws, 1), seen_KO.new_zeros(draws * k), 1.0
        for step in range(horizon):
            target_JT, end_J = self.advanced(now_JO, action_KHA[:, step].repeat(draws, 1), noise_MHT[:, step])
            now_JO = now_JO + target_JT[:, :-1]
            earned_J = earned_J + on_J * target_JT[:, -1]
            if self.spec.ends != "never":
                on_J = on_J * (~self.ended(now_JO, end_J)).float()
        return earned_J.reshape(draws, k).mean(0)

    def _noise(self, draws: int, rows: int, steps: int) -> Float[Tensor, "D N S T"]:
        """The same in every call of these sizes, so that a plan is a function of what it is of."""
        shape = (draws, rows, steps, self.spec.observations + 1)
        return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def levels(count: int) -> list[float]:
    """Sizes of noise from MOST to LEAST, evenly in s^(1 / CURVE)."""
    high, low = MOST ** (1 / CURVE), LEAST ** (1 / CURVE)
    return [(high + (low - high) * n / (count - 1)) ** CURVE for n in range(count)]


@dataclass(frozen=True, kw_only=True)
class DiffusionDynamics(AbstractWorld):
    """A learned world that draws the change of the observation and the reward by a small conditional diffusion model over the vector of
    both (in the form of DIAMOND, arXiv:2405.12399, whose observations are pixels). ``WorldDenoising`` trains it.

    A draw takes ``evaluations`` passes through one network. Plans count the mean return of ``draws`` futures, which costs ``draws``
    times ``evaluations`` times as much as a plan in one network of ``Dynamics``.

    ``ends``: "never"; "learned", by a network of its own that reads what the step led to; or a known function of next observations
    [K, O] that is True where the environment ends.

    It has no likelihood: nothing here is told in nats (``world/nll``), and ``ModelLearning`` and ``Dyna`` refuse it.

    - The same state, action and noise: the same step to the bit.
    - A target without noise: every draw is that target.
    - A linear Gaussian environment: draws have its mean and deviation, the latter within an eighth where it is at least .05 of the
      target's spread; deviations below LEAST, a fiftieth of it, come out too small.
    - Two outcomes of a step: both are drawn, in their shares, and next to nothing between them.

    Published (DIAMOND): several frames behind, U-nets, 3 Euler steps, rewards and ends by a separate network. Ours:
    one observation is all of the state, the reward is drawn with it, and the solver is of second order (DPM-Solver++(2M),
    arXiv:2211.01095), as 5 Euler steps leave .6 to .7 of a Gaussian's deviation.
    """

    hidden: tuple[int, ...] = (128, 128, 128)
    evaluations: int = 8
    draws: int = 4

    def __post_init__(self) -> None:
        if self.evaluations < 2 or self.draws < 1:
            raise ValueError(
                f"DiffusionDynamics has evaluations {self.evaluations} and draws {self.draws}; a draw takes 2 passes or more, and "
                "a plan at least 1 draw"
            )
        super().__post_init__()

    def load(self, seed: int) -> DiffusionDynamicsNetwork:
        return DiffusionDynamicsNetwork(self, stable_hash("world", seed) % 2**63)
