from __future__ import annotations

from dataclasses import replace

from gimbal.engines.native import Native
from gimbal.learning.proximal.sampling_version import SamplingVersion
from gimbal.recipes.papers.staleness.ppo_ewma import ppo_ewma
from gimbal.runtime.run import Run


def exact_proximal() -> Run:
    """Decoupled PPO with the exact old policy (arXiv:2605.12070): evaluates each decision with the version that sampled it."""
    run = ppo_ewma()
    engine = Native(slots=128, precision="int8", cache="recompute")
    return replace(run, engine=engine, anchor=SamplingVersion(window=run.max_staleness))
