"""Distillation along one's own denoising paths: how much noise does the closed form of the KL take out of the gradient? (DiffusionOPD)

**Setting.** gimbal-digits without guidance is the policy; its teacher is the same network with guidance, of 1.5 (near) and of 3 (far).
64 paths of ten steps (flow_sde, noise .7, nine sampled, classes in turn) are drawn once for a seed. From these same paths the gradient
of the sum over steps of KL(policy || teacher), the states held constant, is estimated in three ways for each path by itself: *closed*,
of the squared distance of the means (`PathDistillation`); *score*, of (log p - log p_e) log p of the state that was drawn, the first
factor constant; *baseline*, the same with the mean of that factor over the other 63 paths, step by step, taken away. All three have one
mean over what is drawn.

**Figures.** The variance is the trace of the covariance of the 64 gradients, over all weights. *score / closed* and *baseline / closed*
are ratios of variances. *along* is the mean gradient of *baseline*, projected on that of *closed* and divided by its length: 1 but for
noise, which shows that the two estimate one thing; *error* is the standard error of that figure over the paths.

**Rule.** Seeds 0 to 4. *The closed form has less variance* if *baseline / closed* is above 1 in all five seeds at both guidances; *it
is refuted* if it is below 1 in all five at one of them; otherwise nothing is decided. The ratio's size is described by its median and
range. If *along* is further than four errors from 1 in any seed, the two do not estimate one thing, and there is no verdict.

**Limits.** Variance at one point, the policy as the run begins: what a run gains by it is not measured. The paths of all estimates are
the same, so the variance over states, which no estimator takes out, is in all of them. 64 dimensions, 297 k weights.

Written before its runs; a ratio of 14, and of 8 with a baseline, had been found on a problem in two dimensions.

    python claims/closed_form.py --processes 1     # goes on from claims/closed_form.json; a minute of one idle core
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import campaign
import torch
from torch import Tensor

from gimbal.engines.base import Request, drained
from gimbal.engines.denoising import Denoising
from gimbal.environments.conditions import Conditions
from gimbal.learning.updates.path_distillation import compared, stepped
from gimbal.policies.denoiser import Denoiser, DenoiserPolicy
from gimbal.policies.paths import Paths, PathSampling
from gimbal.policies.samplers import log_density

RECORD = Path(__file__).with_suffix(".json")
SEEDS, GUIDANCES, PATHS, ERRORS = (0, 1, 2, 3, 4), (1.5, 3.0), 64, 4.0
SAMPLING = PathSampling(max_length=10, sampler="flow_sde", noise=0.7)

Runs = Sequence[dict[str, Any]]
Job = tuple[int, float]  # seed, guidance of the teacher


def drawn(policy: DenoiserPolicy, seed: int) -> list[Paths]:
    engine = Denoising(slots=PATHS).start(policy)
    engine.load(0, policy.weights())
    tasks = Conditions(seed=seed, labels=tuple(range(10)))
    for sample in range(PATHS):
        engine.submit(Request(group=sample, task=tasks[sample], sample=0, sampling=SAMPLING, seed=seed))
    found = [finished.rollout.decisions for _, finished in sorted(drained(engine).items())]
    return [decisions for decisions in found if isinstance(decisions, Paths)]


def factors(policy: DenoiserPolicy, teacher: DenoiserPolicy, path: Paths) -> tuple[Tensor, Tensor, Tensor]:
    """Of each sampled step of one path: the KL in closed form and the log-probability, with gradient, and log p - log p_e without."""
    row_K, step_K = compared(path).nonzero(as_tuple=True)
    mean_KD, std_K = stepped(policy, path, row_K, step_K)
    with torch.no_grad():
        wanted_KD, _ = stepped(teacher, path, row_K, step_K)
    after_KD = path.state_NXD[row_K, step_K + 1]
    kl_K = (mean_KD - wanted_KD).square().flatten(1).sum(-1) / (2 * std_K.square())
    logprob_K = log_density(after_KD, mean_KD, std_K, 1.0)
    return kl_K, logprob_K, logprob_K.detach() - log_density(after_KD, wanted_KD, std_K, 1.0)


def measure(job: Job) -> dict[str, Any]:
    torch.set_num_threads(1)
    seed, guidance = job
    start = time.process_time()
    steps = SAMPLING.max_length - 1  # a path at a time goes through the network
    policy, teacher = Denoiser(batch=steps).load(), Denoiser(batch=steps, guidance=guidance).load()
    paths, weights = drawn(Denoiser().load(), seed), list(policy.parameters())
    with torch.no_grad():
        gap_NK = torch.stack([factors(policy, teacher, path)[2] for path in paths])
    others_NK = (gap_NK.sum(0) - gap_NK) / (PATHS - 1)
    found: dict[str, list[Tensor]] = {"closed": [], "score": [], "baseline": []}
    for path, others_K in zip(paths, others_NK, strict=True):
        kl_K, logprob_K, gap_K = factors(policy, teacher, path)
        losses = {"closed": kl_K, "score": gap_K * logprob_K, "baseline": (gap_K - others_K) * logprob_K}
        for name, loss_K in losses.items():
            parts = torch.autograd.grad(loss_K.sum(), weights, retain_graph=True, allow_unused=True)
            found[name].append(torch.cat([part.flatten() for part in parts if part is not None]))
    rows = {name: torch.stack(gradients) for name, gradients in found.items()}
    variance = {name: float(row_NW.var(0).sum()) for name, row_NW in rows.items()}
    mean_W = rows["closed"].mean(0)
    along_N = (rows["baseline"] - rows["closed"]) @ mean_W / mean_W.square().sum()
    return {
        "seed": seed,
        "guidance": guidance,
        "length": round(float(mean_W.norm()), 3),
        "score / closed": round(variance["score"] / variance["closed"], 3),
        "baseline / closed": round(variance["baseline"] / variance["closed"], 3),
        "along": round(1 + float(along_N.mean()), 3),
        "error": round(float(along_N.std()) / PATHS**0.5, 3),
        "cpu": round(time.process_time() - start, 1),
    }


def left(runs: Runs) -> Iterator[list[Job]]:
    done = {(run["seed"], run["guidance"]) for run in runs}
    yield [(seed, guidance) for seed in SEEDS for guidance in GUIDANCES if (seed, guidance) not in done]


def own(runs: Runs, guidance: float) -> Runs:
    return sorted((run for run in runs if run["guidance"] == guidance), key=lambda run: run["seed"])


def verdict(runs: Runs) -> str:
    if len(runs) < len(SEEDS) * len(GUIDANCES):
        return "open: runs are missing"
    if any(abs(run["along"] - 1) > ERRORS * run["error"] for run in runs):
        return "none: the two do not estimate one thing"
    ratios = {guidance: [run["baseline / closed"] for run in own(runs, guidance)] for guidance in GUIDANCES}
    if all(min(found) > 1 for found in ratios.values()):
        return "**supported**"
    return "**refuted**" if any(max(found) < 1 for found in ratios.values()) else "not decided"


if __name__ == "__main__":
    campaign.campaign(__doc__, RECORD, left, measure, campaign.described)
