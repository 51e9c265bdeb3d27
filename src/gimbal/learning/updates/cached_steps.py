"""The way back of a reward's gradient through a few steps of a path that is kept, not walked again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from gimbal.learning.updates.gradient_steps import AbstractGradientSteps, Found, GradientEnd
from gimbal.policies.denoiser import DenoiserPolicy
from gimbal.policies.paths import Paths
from gimbal.policies.samplers import wide


@dataclass(frozen=True, kw_only=True)
class CachedSteps(AbstractGradientSteps):
    """A surrogate of the recorded path: its end is the recorded sample, and its gradient goes through ``count`` of the S steps (FlowBP,
    arXiv:2606.11075, its forms Sparse and Bridge).

    x_k and x_S are the recorded states of an ODE of a flow, v_k = v(x_k, t_k) with x_k held constant. For active steps I, drawn
    without replacement with weights (k + 1)^late (step 0 begins at noise; one draw a learner step, for all paths):

        x = x_S - f sum_{k in I} dt_k (v_k - sg v_k),   f = 1 + scale (sum_k dt_k / sum_{k in I} dt_k - 1)

    So the gradient is - f sum_{k in I} dt_k (dv_k / dtheta)^T dR/dx, without a Jacobian of the network. It takes ``count`` evaluations
    of the network, where a path that is walked again takes all from the first active step to the end.

    ``bridge`` alpha > 0: a random step j is active too, at least one of the others lies before it, and v_j is evaluated at x_j plus
    alpha times what the steps before it moved: its gradient also goes through one Jacobian, alpha dv_j / dx, per path.

    - ``count`` S, no bridge: the gradient of DRTune that keeps all steps, whatever ``scale`` and ``late``.
    - the last step alone, ``scale`` 0: DRaFT-1.
    - ``bridge`` to 0: no Jacobian.
    - paths of one step: all forms are the full gradient.

    A path that older weights drew is not mended: its states, and the sample that is scored, stay those of its own weights.

    Published: count 4, late 1, scale 0.5 of 25 steps; with a bridge count 5, late 4, scale 0, alpha 0.5, and a share of the steps
    before j by the length of that part, where here they are drawn from all but j. Left out: leaps by Lagrange polynomials, LeapAlign's
    weights of samples.

    Confidence: verified.
    """

    count: int = 4
    late: float = 1.0
    scale: float = 0.5
    bridge: float = 0.0

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(
                f"CachedSteps.count is {self.count}; it must be at least 1, since without a step there is no gradient"
            )
        if not (0 <= self.late <= 100 and 0 <= self.scale <= 1 and 0 <= self.bridge <= 1):
            raise ValueError(
                f"CachedSteps.late is {self.late}, scale {self.scale} and bridge {self.bridge}; late must be from 0 to 100, "
                "scale and bridge from 0 to 1"
            )
        if self.bridge and self.count < 2:
            raise ValueError(
                f"CachedSteps.bridge is {self.bridge} and count {self.count}; a bridge needs a step before it: set count=2 or bridge=0"
            )

    @property
    def copies(self) -> int:
        return 0

    def drawn(self, steps: int, generator: np.random.Generator) -> tuple[list[int], int]:
        """(the active steps, the bridge among them or -1), of that many."""
        weight_S = np.arange(1, steps + 1, dtype=float) ** self.late
        split = int(generator.integers(1, steps)) if self.bridge else -1
        first = [split] if self.bridge else []
        if self.bridge:
            before_K = weight_S[:split]
            first.append(int(generator.choice(split, p=before_K / before_K.sum())))
        weight_S[first] = 0
        rest = self.count - len(first)
        more = generator.choice(steps, size=rest, replace=False, p=weight_S / weight_S.sum()) if rest else []
        return sorted([*first, *(int(k) for k in more)]), split

    def ended(
        self, policy: DenoiserPolicy, decisions: Paths, generator: np.random.Generator, found: Found
    ) -> GradientEnd:
        """The recorded samples, with the surrogate's gradient."""
        if not policy.process.flow:
            raise ValueError(
                f"update.steps=CachedSteps() adds up the velocities of a flow, and {policy.source} has the scheduler "
                f"{policy.process.name}: use update.steps=GradientSteps()"
            )
        chosen, split = self.drawn(decisions.shape[1], generator)
        level_NSL = decisions.level_NSL
        dt_NS = level_NSL[..., 1] - level_NSL[..., 3]
        factor_N = 1 + self.scale * (dt_NS.sum(1) / dt_NS[:, chosen].sum(1) - 1)
        moved_ND = torch.zeros_like(decisions.sample_ND)  # its value is and stays 0
        for k in chosen:
            x_ND = decisions.state_NXD[:, k]
            if k == split:
                x_ND = x_ND + self.bridge * moved_ND
            v_ND = found(policy, x_ND, decisions.time_NS[:, k], decisions.label_N, decisions.given_ND)
            moved_ND = moved_ND - wide(factor_N * dt_NS[:, k], v_ND) * (v_ND - v_ND.detach())
        return GradientEnd(decisions.sample_ND + moved_ND, self.count)

    def misfit(self, sampler: str, length: int) -> str:
        """Why it does not go with such paths; "" where it does."""
        if sampler != "ode":
            return (
                f"update.steps=CachedSteps() adds up the steps of an ODE, and sampling.sampler is {sampler}: set sampling.sampler=ode, "
                "or update.steps=GradientSteps()"
            )
        if self.count > length:
            return (
                f"update.steps.count is {self.count}, and a path has {length} steps: set update.steps.count={length}, or "
                f"sampling.max_length={self.count}"
            )
        return ""
