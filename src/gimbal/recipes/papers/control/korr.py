from __future__ import annotations

from dataclasses import replace

from gimbal.policies.frozen_base import Residual
from gimbal.policies.koopman import Koopman
from gimbal.recipes.papers.control.residual import residual
from gimbal.runtime.run import UpdateRun


def korr() -> UpdateRun:
    """KORR (arXiv:2509.12562) on Pendulum-v1: residual TD3 that sees where the base's action would lead, by a linear latent model.

    As published: the correction reads A phi(o) + B a_b alone, the model learns from the executed actions of the same steps, and the
    policy's gradient reaches it too. Ours: TD3 in place of PPO, the model learns alone during the burn-in, observations in units of
    their spread, and those of ``Koopman``.
    """
    base = residual()
    assert isinstance(base.policy, Residual)
    return replace(base, policy=replace(base.policy, normalize=True, foresight=Koopman()))
